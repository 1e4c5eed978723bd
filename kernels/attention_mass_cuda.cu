// Each visited block's share of the softmax's mass, from the log-sum-exp of the rows: a thread
// block for each query head, 128 query rows and some of the key blocks that they visit.
#include "kernels/attention_tile.h"
#include "kernels/block_attention_launch.h"

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {
namespace {

constexpr uint32_t kMassWarps = kQueryBlock / 16, kMassThreads = kMassWarps * kWarpSize;
constexpr uint32_t kMassBlocks = 8;  // key blocks of a thread block

// The sum over a warp, in each lane.
__device__ __forceinline__ float WarpSum(float x) {
  SPARKV_UNROLL
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kWholeWarp, x, step);
  return x;
}

template <uint32_t kDim>
__global__ void __launch_bounds__(kMassThreads, 2) AttentionMassKernel(const BlockAttentionArgs a) {
  using Shape = TileShape<kDim>;
  SPARKV_DYNAMIC_SHARED(shared);
  SPARKV_SHARED(float, sums, 2 * kMassWarps);
  constexpr auto kBlock = static_cast<uint32_t>(kKeyBlock);
  const uint32_t head = blockIdx.x, query_block = blockIdx.y;
  const uint32_t begin = static_cast<uint32_t>(a.begin), rows = static_cast<uint32_t>(a.rows);
  const uint32_t first_row = query_block * static_cast<uint32_t>(kQueryBlock);
  const uint32_t behind =
      rows - first_row < kQueryBlock ? rows : first_row + static_cast<uint32_t>(kQueryBlock);
  const uint32_t end = begin + behind, blocks = (end + kBlock - 1) / kBlock;
  const uint32_t warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const uint32_t list = head * gridDim.y + query_block;
  bool fault = false;
  const BlockWalk walk = WalkOf(a.lists, gridDim.x * gridDim.y, list, blocks, &fault);
  const uint32_t key_blocks = static_cast<uint32_t>((a.begin + a.rows + kKeyBlock - 1) / kKeyBlock);
  float* const mass = walk.list != nullptr ? a.mass + (walk.list - a.lists.blocks)
                                           : a.mass + size_t{list} * key_blocks;
  const uint32_t from = blockIdx.z * kMassBlocks;
  if (walk.list == nullptr) {  // blocks that these rows do not see
    for (uint32_t i = from + threadIdx.x; i < from + kMassBlocks && i < key_blocks;
         i += kMassThreads) {
      if (i >= blocks) mass[i] = 0;
    }
  }
  const uint32_t to = walk.count < from + kMassBlocks ? walk.count : from + kMassBlocks;
  if (from >= to) return;

  const uint32_t warp_row = first_row + 16 * warp;
  const WarpRows<kDim, 1> mine(
      a.scale, shared + 2 * TileShape<kDim>::kTileBytes,
      [&](uint32_t i) {
        const uint32_t row = warp_row + i;
        return row < behind ? a.q + head * a.q_head_stride + row * a.q_row_stride : nullptr;
      },
      [&](uint32_t i) { return begin + warp_row + i + 1; });
  float log_sum[2];  // in units of log 2; infinite for rows that don't count
  float finite = 0;
  SPARKV_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t row = warp_row + lane / 4 + 8 * half;
    log_sum[half] = row < behind ? __ldg(a.log_sum + size_t{head} * rows + row) * kLog2E : INFINITY;
    if (!(log_sum[half] - log_sum[half] == 0)) log_sum[half] = INFINITY;
    if (log_sum[half] != INFINITY && lane % 4 == 0) finite += 1;
  }
  finite = WarpSum(finite);
  if (lane == 0) sums[warp] = finite;
  __syncthreads();
  finite = 0;
  for (uint32_t w = 0; w < kMassWarps; ++w) finite += sums[w];

  const uint32_t kv_head = head / (gridDim.x / static_cast<uint32_t>(a.kv.kv_heads));
  const size_t head_offset = kv_head * a.kv.head_stride;
  const uint32_t tiles = (to - from) * Shape::kParts;
  const auto first_of = [&](uint32_t tile) {
    return walk.At(from + tile / Shape::kParts) * kBlock + tile % Shape::kParts * Shape::kKeys;
  };
  float block_sum = 0;  // of the first thread
  SPARKV_NO_UNROLL
  for (uint32_t tile = 0; tile <= tiles + 1; ++tile) {
    WaitForCopies<0>();
    __syncthreads();  // of the sums of the tile before the last, too
    if (tile < tiles) {
      LoadTile<kDim, kMassThreads>(a.kv.k, head_offset, first_of(tile), end,
                                   shared + tile % 2 * Shape::kTileBytes);
      CommitCopies();
    }
    if (tile >= 2 && threadIdx.x == 0) {
      const uint32_t done = tile - 2;
      for (uint32_t w = 0; w < kMassWarps; ++w) block_sum += sums[done % 2 * kMassWarps + w];
      if (done % Shape::kParts == Shape::kParts - 1) {
        mass[from + done / Shape::kParts] = finite == 0 ? 0 : block_sum / finite;
        block_sum = 0;
      }
    }
    if (tile == 0 || tile > tiles) continue;
    const uint32_t first = first_of(tile - 1);
    float sum = 0;
    if (mine.Sees(first)) {
      float x[1][Shape::kKeys / 8][4];
      mine.Score(shared + (tile - 1) % 2 * Shape::kTileBytes, first, x);
      SPARKV_UNROLL
      for (uint32_t n = 0; n < Shape::kKeys / 8; ++n) {
        SPARKV_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          if (log_sum[i / 2] != INFINITY) sum += Exp2(x[0][n][i] - log_sum[i / 2]);
        }
      }
    }
    sum = WarpSum(sum);
    if (lane == 0) sums[(tile - 1) % 2 * kMassWarps + warp] = sum;
  }
}

template <uint32_t kDim>
const char* Start(const BlockAttentionArgs& a, CudaStream stream) {
  const dim3 grid(static_cast<uint32_t>(a.heads), static_cast<uint32_t>(a.query_blocks()),
                  static_cast<uint32_t>((a.key_blocks() + kMassBlocks - 1) / kMassBlocks));
  return Launch(AttentionMassKernel<kDim>, grid, dim3(kMassThreads),
                TileShape<kDim>::SharedBytes(2, kMassWarps), stream, a);
}

}  // namespace

const char* LaunchAttentionMass(const BlockAttentionArgs& a, CudaStream stream) {
  switch (a.kv.dim) {
    case 64:
      return Start<64>(a, stream);
    case 80:
      return Start<80>(a, stream);
    case 96:
      return Start<96>(a, stream);
    case 128:
      return Start<128>(a, stream);
    default:
      return Start<256>(a, stream);
  }
}

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
