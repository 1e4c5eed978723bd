// What the attention kernels share: a thread block that passes over the tiles of a block list.
#pragma once

#include <cstdint>

#include "kernels/block_walk.h"
#include "kernels/warp_rows.h"

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {

// A weight of 0 must not meet a value that isn't finite: such values of a tile become 0, and NaN in
// the rows that see them. By the whole thread block.
template <uint32_t kThreads, uint32_t kDim, uint32_t kTiles>
__device__ __forceinline__ void SettleOthers(unsigned char* v, uint32_t first,
                                             WarpRows<kDim, kTiles>* rows) {
  uint32_t* const pairs = reinterpret_cast<uint32_t*>(v);
  bool others = false;
  for (uint32_t i = threadIdx.x; i < TileShape<kDim>::kTileBytes / 4; i += kThreads) {
    others |= OthersAsOne(pairs[i]) != 0;
  }
  if (!__syncthreads_or(others)) return;
  rows->MarkOthers(v, first);
  __syncthreads();
  SPARKV_NO_UNROLL
  for (uint32_t i = threadIdx.x; i < TileShape<kDim>::kTileBytes / 4; i += kThreads) {
    pairs[i] = FiniteHalves(pairs[i]);
  }
  __syncthreads();
}

// Passes over the blocks of a walk. The copies of the next tile are on their way while all warps of
// the thread block compute with one. end: behind the last key that is there; all: keys
// that all rows of the thread block see.
template <uint32_t kThreads, uint32_t kDim, uint32_t kTiles>
__device__ __forceinline__ void AttendWalk(const PagedKv& kv, uint32_t kv_head,
                                           const BlockWalk& walk, uint32_t end, uint32_t all,
                                           float skip, uint32_t* faults, unsigned char* shared,
                                           WarpRows<kDim, kTiles>* rows) {
  using Shape = TileShape<kDim>;
  const size_t head_offset = kv_head * kv.head_stride;
  const uint32_t tiles = walk.count * Shape::kParts;
  const auto first_of = [&](uint32_t tile) {
    return walk.At(tile / Shape::kParts) * static_cast<uint32_t>(kKeyBlock) +
           tile % Shape::kParts * Shape::kKeys;
  };
  const auto load = [&](uint32_t tile) {
    if (threadIdx.x == 0) CheckEntry(walk, tile / Shape::kParts, faults);
    const uint32_t first = first_of(tile);
    unsigned char* const to = shared + tile % 2 * (2 * Shape::kTileBytes);
    LoadTile<kDim, kThreads>(kv.k, head_offset, first, end, to);
    LoadTile<kDim, kThreads>(kv.v, head_offset, first, end, to + Shape::kTileBytes);
    CommitCopies();
  };
  if (tiles > 0) load(0);
  SPARKV_NO_UNROLL
  for (uint32_t tile = 0; tile < tiles; ++tile) {
    WaitForCopies<0>();
    __syncthreads();  // all see the tile, and none needs the one before
    if (tile + 1 < tiles) load(tile + 1);
    const uint32_t first = first_of(tile);
    unsigned char* const k = shared + tile % 2 * (2 * Shape::kTileBytes);
    if (first + Shape::kKeys > all) SettleOthers<kThreads>(k + Shape::kTileBytes, first, rows);
    if (rows->Sees(first)) rows->Attend(k, k + Shape::kTileBytes, first, skip);
  }
}

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
