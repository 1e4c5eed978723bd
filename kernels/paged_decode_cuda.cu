// The CUDA twin of PagedDecodeAttention: the keys of a KV head are cut into parts, each for a
// thread block, whose four warps take 16 pairs of a query row and a query head each, so that a
// group of query heads reads K and V once (with block lists, which may differ, each head by
// itself). A second kernel adds the parts in their order.
#include "kernels/attention_tile.h"
#include "kernels/block_attention_launch.h"

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {
namespace {

constexpr uint32_t kDecodeWarps = 4, kDecodeThreads = kDecodeWarps * kWarpSize;
constexpr uint32_t kDecodePairs = 16 * kDecodeWarps;

// scratch: [parts][heads][rows] pairs of maximum and sum, then as many rows of [kDim], not divided
// by the sum and left alone where the sum is 0.
template <uint32_t kDim>
__global__ void __launch_bounds__(kDecodeThreads)
    DecodePartKernel(const BlockAttentionArgs a, uint32_t group, uint32_t part_blocks,
                     float* scratch, uint32_t* faults) {
  SPARKV_DYNAMIC_SHARED(shared);
  constexpr auto kBlock = static_cast<uint32_t>(kKeyBlock);
  const uint32_t part = blockIdx.x, first_head = blockIdx.y * group;
  const auto heads = static_cast<uint32_t>(a.heads), rows = static_cast<uint32_t>(a.rows);
  const auto begin = static_cast<uint32_t>(a.begin);
  const uint32_t pairs = rows * group;
  const uint32_t warp_pair = blockIdx.z * kDecodePairs + threadIdx.x / kWarpSize * 16;
  WarpRows<kDim, 1> mine(
      a.scale, shared + 4 * TileShape<kDim>::kTileBytes,
      [&](uint32_t i) {
        const uint32_t pair = warp_pair + i, head = first_head + pair % group;
        return pair < pairs ? a.q + head * a.q_head_stride + pair / group * a.q_row_stride
                            : nullptr;
      },
      [&](uint32_t i) { return begin + (warp_pair + i) / group + 1; });
  const uint32_t end = begin + rows;
  bool fault = false;
  BlockWalk walk = WalkOf(a.lists, heads, first_head, (end + kBlock - 1) / kBlock, &fault);
  if (fault && faults != nullptr && threadIdx.x == 0) *faults = 1;
  // This part of it. An entry that follows another part's last is compared with that one.
  const uint32_t from = part * part_blocks < walk.count ? part * part_blocks : walk.count;
  const uint32_t count = walk.count - from < part_blocks ? walk.count - from : part_blocks;
  if (walk.list != nullptr) {
    if (threadIdx.x == 0 && faults != nullptr && count > 0 && from > 0 &&
        __ldg(walk.list + from) <= __ldg(walk.list + from - 1)) {
      *faults = 1;
    }
    walk.list += from;
  }
  walk.first = from;
  walk.count = count;
  AttendWalk<kDecodeThreads>(a.kv, blockIdx.y / (gridDim.y / static_cast<uint32_t>(a.kv.kv_heads)),
                             walk, end, begin + 1, a.skip_below * kLog2E, faults, shared, &mine);
  mine.Finish();
  float* const means = scratch + size_t{2} * gridDim.x * heads * rows;
  SPARKV_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    if (!mine.there(half)) continue;
    const uint32_t pair = warp_pair + threadIdx.x % kWarpSize / 4 + 8 * half;
    const size_t at = (size_t{part} * heads + first_head + pair % group) * rows + pair / group;
    if (threadIdx.x % 4 == 0) {
      scratch[2 * at] = mine.max(half);
      scratch[2 * at + 1] = mine.sum(half);
    }
    if (mine.sum(half) != 0) mine.Store(half, 1, means + at * kDim);
  }
}

constexpr uint32_t kMergeWarps = 4;

// A warp for each row of a query head.
__global__ void __launch_bounds__(kMergeWarps* kWarpSize)
    DecodeMergeKernel(const BlockAttentionArgs a, uint32_t parts, const float* scratch) {
  const auto heads = static_cast<uint32_t>(a.heads), rows = static_cast<uint32_t>(a.rows);
  const auto dim = static_cast<uint32_t>(a.kv.dim);
  const uint32_t all = heads * rows, lane = threadIdx.x % kWarpSize;
  const uint32_t number = blockIdx.x * kMergeWarps + threadIdx.x / kWarpSize;
  if (number >= all) return;
  const float* const means = scratch + size_t{2} * parts * all;
  float max = -INFINITY, sum = 0;
  for (uint32_t p = 0; p < parts; ++p) {
    max = fmaxf(max, scratch[2 * (size_t{p} * all + number)]);
  }
  const float base = max == -INFINITY ? 0 : max;
  for (uint32_t p = 0; p < parts; ++p) {
    const float* const state = scratch + 2 * (size_t{p} * all + number);
    sum += state[1] * Exp2(state[0] - base);
  }
  const uint32_t head = number / rows, row = number % rows;
  float* const out = a.out + head * a.out_head_stride + row * a.out_row_stride;
  const float factor = sum == 0 ? 0 : 1 / sum;
  for (uint32_t i = lane; i < dim; i += kWarpSize) {
    float mean = 0;
    for (uint32_t p = 0; p < parts; ++p) {
      const size_t at = size_t{p} * all + number;
      if (scratch[2 * at + 1] == 0) continue;
      mean += means[at * dim + i] * Exp2(scratch[2 * at] - base);
    }
    out[i] = mean * factor;
  }
  if (a.log_sum != nullptr && lane == 0) {
    a.log_sum[number] = sum == 0 ? -INFINITY : (max + log2f(sum)) * kLn2;
  }
}

template <uint32_t kDim>
const char* Start(const BlockAttentionArgs& a, float* scratch, uint32_t* faults,
                  CudaStream stream) {
  const bool lists = a.lists.begin != nullptr;
  const auto heads = static_cast<uint32_t>(a.heads), rows = static_cast<uint32_t>(a.rows);
  const uint32_t group = lists ? 1 : heads / static_cast<uint32_t>(a.kv.kv_heads);
  const auto parts = static_cast<uint32_t>(DecodeParts(a.key_blocks()));
  const dim3 grid(parts, heads / group, (rows * group + kDecodePairs - 1) / kDecodePairs);
  const char* const error =
      Launch(DecodePartKernel<kDim>, grid, dim3(kDecodeThreads),
             TileShape<kDim>::SharedBytes(4, kDecodeWarps), stream, a, group,
             static_cast<uint32_t>(DecodePartBlocks(a.key_blocks())), scratch, faults);
  if (error != nullptr) return error;
  return Launch(DecodeMergeKernel, dim3((heads * rows + kMergeWarps - 1) / kMergeWarps),
                dim3(kMergeWarps * kWarpSize), 0, stream, a, parts, scratch);
}

}  // namespace

const char* LaunchPagedDecode(const BlockAttentionArgs& a, float* scratch, uint32_t* faults,
                              CudaStream stream) {
  switch (a.kv.dim) {
    case 64:
      return Start<64>(a, scratch, faults, stream);
    case 80:
      return Start<80>(a, scratch, faults, stream);
    case 96:
      return Start<96>(a, scratch, faults, stream);
    case 128:
      return Start<128>(a, scratch, faults, stream);
    default:
      return Start<256>(a, scratch, faults, stream);
  }
}

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
