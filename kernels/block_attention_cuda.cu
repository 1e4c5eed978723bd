// The CUDA twin of BlockSparseAttention: a thread block for each query head and 128 query rows.
#include "kernels/attention_tile.h"
#include "kernels/block_attention_launch.h"

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {
namespace {

// 32 rows of a warp need half of the reads of shared memory of twice 16, where registers suffice.
template <uint32_t kDim>
struct RowShape {
  static constexpr uint32_t kTiles = kDim > 96 ? 1 : 2;
  static constexpr uint32_t kThreads = kQueryBlock / (16 * kTiles) * kWarpSize;
};

template <uint32_t kDim>
__global__ void __launch_bounds__(RowShape<kDim>::kThreads)
    BlockAttentionKernel(const BlockAttentionArgs a, uint32_t* faults) {
  constexpr uint32_t kTiles = RowShape<kDim>::kTiles, kThreads = RowShape<kDim>::kThreads;
  SPARKV_DYNAMIC_SHARED(shared);
  // The blocks with the most keys start first.
  const uint32_t head = blockIdx.x, query_block = gridDim.y - 1 - blockIdx.y;
  const uint32_t begin = static_cast<uint32_t>(a.begin), rows = static_cast<uint32_t>(a.rows);
  const uint32_t first_row = query_block * static_cast<uint32_t>(kQueryBlock);
  const uint32_t behind =
      rows - first_row < kQueryBlock ? rows : first_row + static_cast<uint32_t>(kQueryBlock);
  const uint32_t end = begin + behind;
  const uint32_t warp_row = first_row + threadIdx.x / kWarpSize * (16 * kTiles);
  WarpRows<kDim, kTiles> mine(
      a.scale, shared + 4 * TileShape<kDim>::kTileBytes,
      [&](uint32_t i) {
        const uint32_t row = warp_row + i;
        return row < behind ? a.q + head * a.q_head_stride + row * a.q_row_stride : nullptr;
      },
      [&](uint32_t i) { return begin + warp_row + i + 1; });
  bool fault = false;
  const BlockWalk walk = WalkOf(
      a.lists, gridDim.x * gridDim.y, head * gridDim.y + query_block,
      (end + static_cast<uint32_t>(kKeyBlock) - 1) / static_cast<uint32_t>(kKeyBlock), &fault);
  if (fault && faults != nullptr && threadIdx.x == 0) *faults = 1;
  const auto kv_head =
      static_cast<uint32_t>(head / (gridDim.x / static_cast<uint32_t>(a.kv.kv_heads)));
  AttendWalk<kThreads>(a.kv, kv_head, walk, end, begin + first_row + 1, a.skip_below * kLog2E,
                       faults, shared, &mine);
  mine.Finish();
  SPARKV_UNROLL
  for (uint32_t half = 0; half < 2 * kTiles; ++half) {
    if (!mine.there(half)) continue;
    const uint32_t row = warp_row + threadIdx.x % kWarpSize / 4 + 8 * half;
    const float sum = mine.sum(half);
    mine.Store(half, sum == 0 ? 0 : 1 / sum,
               a.out + head * a.out_head_stride + row * a.out_row_stride);
    if (a.log_sum != nullptr && threadIdx.x % 4 == 0) {
      a.log_sum[size_t{head} * rows + row] =
          sum == 0 ? -INFINITY : (mine.max(half) + log2f(sum)) * kLn2;
    }
  }
}

template <uint32_t kDim>
const char* Start(const BlockAttentionArgs& a, uint32_t* faults, CudaStream stream) {
  const dim3 grid(static_cast<uint32_t>(a.heads), static_cast<uint32_t>(a.query_blocks()));
  return Launch(BlockAttentionKernel<kDim>, grid, dim3(RowShape<kDim>::kThreads),
                TileShape<kDim>::SharedBytes(4, kQueryBlock / 16), stream, a, faults);
}

}  // namespace

const char* LaunchBlockAttention(const BlockAttentionArgs& a, uint32_t* faults, CudaStream stream) {
  switch (a.kv.dim) {
    case 64:
      return Start<64>(a, faults, stream);
    case 80:
      return Start<80>(a, faults, stream);
    case 96:
      return Start<96>(a, faults, stream);
    case 128:
      return Start<128>(a, faults, stream);
    default:
      return Start<256>(a, faults, stream);
  }
}

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
