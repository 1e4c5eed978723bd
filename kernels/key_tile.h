// Tiles of keys or values in the shared memory of the attention kernels.
#pragma once

#include <cstdint>

#include "kernels/block_attention_args.h"
#include "kernels/cuda_mma.h"

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {

// Both tiles twice, one pair for the copies on their way, and the queries of 8 warps must fit into
// the 99 KB of sm_89.
template <uint32_t kDim>
struct TileShape {
  static constexpr uint32_t kKeys = kDim > 128 ? 16 : 64;
  static constexpr uint32_t kParts = kKeyBlock / kKeys;  // of a key block
  static constexpr uint32_t kChunks = kDim / 8;          // of 16 bytes in a row
  static constexpr uint32_t kTileBytes = kKeys * kDim * 2;
  // Queries stay in registers where that costs no thread block on a multiprocessor.
  static constexpr bool kQueriesShared = kDim != 128;
  static constexpr uint32_t SharedBytes(uint32_t tiles, uint32_t warps) {
    return tiles * kTileBytes + (kQueriesShared ? warps * 16 * kDim * 2 : 0);
  }
  static_assert(kQueryBlock == 8 * 16);

  // Bytes before a chunk. ldmatrix reads the same chunk of 8 keys at once: the exclusive or puts
  // these into different banks. Rows repeat their banks every kPeriod keys.
  static constexpr uint32_t kAligned = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : 2;
  static constexpr uint32_t kPeriod = 8 / kAligned;
  static_assert(kChunks % 2 == 0);
  __device__ __forceinline__ static uint32_t Place(uint32_t key, uint32_t chunk) {
    return (key * kChunks + (chunk ^ (key / kPeriod % kAligned))) * 16;
  }
  // The same for chunk even + odd, odd being 0 or 1: a part that hangs on the lane, another one for
  // few values of a constant `even`, and a constant.
  __device__ __forceinline__ static uint32_t Place(uint32_t key, uint32_t even, uint32_t odd) {
    return key * (kChunks * 16) + even / kAligned * (kAligned * 16) +
           (((key / kPeriod % kAligned) ^ odd) * 16 ^ even % kAligned * 16);
  }
};

// Starts the copy of keys [first, first + kKeys) of one head; zeros for keys from `end` on. Pages
// that begin at no multiple of 16 bytes come by single values instead. By the whole thread block.
template <uint32_t kDim, uint32_t kThreads>
__device__ __forceinline__ void LoadTile(const uint16_t* const* pages, size_t head_offset,
                                         uint32_t first, uint32_t end, unsigned char* to) {
  using Shape = TileShape<kDim>;
  // A block that is not there has no page.
  const bool some = first < end;
  const uint16_t* const from =
      some ? pages[first / kKeyBlock] + head_offset + size_t{first % kKeyBlock} * kDim : nullptr;
  const uint32_t keys = some ? end - first : 0;
  if (reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    SPARKV_NO_UNROLL
    for (uint32_t i = threadIdx.x; i < Shape::kKeys * Shape::kChunks; i += kThreads) {
      const uint32_t key = i / Shape::kChunks, chunk = i % Shape::kChunks;
      const bool there = key < keys;
      CopyAsync16(to + Shape::Place(key, chunk), there ? from + 8 * i : from, there ? 16 : 0);
    }
    return;
  }
  SPARKV_NO_UNROLL
  for (uint32_t i = threadIdx.x; i < Shape::kKeys * kDim / 2; i += kThreads) {
    const uint32_t key = i / (kDim / 2), pair = i % (kDim / 2);
    const uint32_t halves =
        key < keys ? __ldg(from + 2 * i) | static_cast<uint32_t>(__ldg(from + 2 * i + 1)) << 16 : 0;
    *reinterpret_cast<uint32_t*>(to + Shape::Place(key, pair / 4) + pair % 4 * 4) = halves;
  }
}

// Zero for halves that are infinite or NaN.
__device__ __forceinline__ uint32_t FiniteHalves(uint32_t x) {
  return ((x & 0x7C00) == 0x7C00 ? 0 : x & 0xFFFF) |
         ((x & 0x7C000000) == 0x7C000000 ? 0 : x & 0xFFFF0000);
}

inline constexpr uint32_t kHalfOne = 0x3C00;

// 1 for halves that are infinite or NaN, 0 for others.
__device__ __forceinline__ uint32_t OthersAsOne(uint32_t x) {
  return ((x & 0x7C00) == 0x7C00 ? kHalfOne : 0) |
         ((x & 0x7C000000) == 0x7C000000 ? kHalfOne << 16 : 0);
}

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
