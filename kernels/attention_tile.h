// What the attention kernels share: tiles of keys and values in shared memory, and one warp's rows
// of queries, which pass over them with tensor cores and an online softmax in registers
// (FlashAttention-2, Dao 2023). Scores are kept in units of log 2.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/block_attention_args.h"
#include "kernels/cuda_mma.h"

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

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

// The key blocks that a thread block visits.
struct BlockWalk {
  const uint32_t* list;  // null: first, first + 1, ...
  uint32_t first, count;
  uint32_t blocks;  // behind the last that may be visited

  // `blocks` for a number that must not be in the list.
  __device__ __forceinline__ uint32_t At(uint32_t i) const {
    if (list == nullptr) return first + i;
    const uint32_t block = __ldg(list + i);
    return block < blocks ? block : blocks;
  }
};

// The blocks of list number `row`, of which the rows see `blocks`. *fault becomes true, and the
// list is empty or shorter, when it isn't as BlockLists says.
__device__ __forceinline__ BlockWalk WalkOf(const BlockLists& lists, uint32_t list_count,
                                            uint32_t row, uint32_t blocks, bool* fault) {
  if (lists.begin == nullptr) return {nullptr, 0, blocks, blocks};
  const uint32_t begin = __ldg(lists.begin + row), end = __ldg(lists.begin + row + 1);
  *fault = end < begin || end > __ldg(lists.begin + list_count) || end - begin > blocks;
  return {lists.blocks + begin, 0, *fault ? 0 : end - begin, blocks};
}

// Sets *faults when entry i of a list is out of range or not above the one before.
__device__ __forceinline__ void CheckEntry(const BlockWalk& walk, uint32_t i, uint32_t* faults) {
  if (walk.list == nullptr || faults == nullptr) return;
  const uint32_t block = __ldg(walk.list + i);
  if (block >= walk.blocks || (i > 0 && block <= __ldg(walk.list + i - 1))) *faults = 1;
}

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

struct alignas(16) SharedQuad {
  uint32_t x, y, z, w;
};

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

// kTiles times 16 rows of queries of one warp. Half h of them: row group + 8 h.
template <uint32_t kDim, uint32_t kTiles>
class WarpRows {
 public:
  using Shape = TileShape<kDim>;

  static constexpr uint32_t kHalves = 2 * kTiles;

  // Of a row 0..16 kTiles - 1: its query (null: there is none) and how many keys it sees. shared:
  // shared memory of all warps for their queries.
  template <typename QueryOf, typename SeesOf>
  __device__ __forceinline__ WarpRows(float scale, unsigned char* shared, const QueryOf& query_of,
                                      const SeesOf& sees_of)
      : scale_(scale * kLog2E),
        lane_(threadIdx.x % kWarpSize),
        shared_(reinterpret_cast<SharedQuad*>(shared) +
                threadIdx.x / kWarpSize * (kTiles * kDim / 16 * kWarpSize) +
                threadIdx.x % kWarpSize) {
    const float* query[kHalves];
    uint32_t least = 0xFFFFFFFF;
    most_ = 0;
    SPARKV_UNROLL
    for (uint32_t half = 0; half < kHalves; ++half) {
      const uint32_t row = lane_ / 4 + 8 * half;
      query[half] = query_of(row);
      const bool there = query[half] != nullptr;
      max_[half] = -INFINITY;
      sees_[half] = there ? sees_of(row) : 0;
      if (there) least = sees_[half] < least ? sees_[half] : least;
      most_ = sees_[half] > most_ ? sees_[half] : most_;
    }
    const auto load = [&](uint32_t half, uint32_t k) {
      return query[half] == nullptr
                 ? 0
                 : PackHalves(__ldg(query[half] + k), __ldg(query[half] + k + 1));
    };
    if constexpr (Shape::kQueriesShared) {
      SPARKV_NO_UNROLL
      for (uint32_t step = 0; step < kDim / 16; ++step) {
        const uint32_t k = 16 * step + 2 * (lane_ % 4);
        SPARKV_UNROLL
        for (uint32_t t = 0; t < kTiles; ++t) {
          shared_[(step * kTiles + t) * kWarpSize] = SharedQuad{
              load(2 * t, k), load(2 * t + 1, k), load(2 * t, k + 8), load(2 * t + 1, k + 8)};
        }
      }
    } else {
      SPARKV_UNROLL
      for (uint32_t step = 0; step < kDim / 16; ++step) {
        SPARKV_UNROLL
        for (uint32_t i = 0; i < 4 * kTiles; ++i) {
          q_[step][i / 4][i % 4] =
              load(i / 4 * 2 + i % 2, 16 * step + i % 4 / 2 * 8 + 2 * (lane_ % 4));
        }
      }
    }
    SPARKV_UNROLL
    for (int step = 16; step > 0; step /= 2) {
      const uint32_t low = __shfl_xor_sync(kWholeWarp, least, step),
                     high = __shfl_xor_sync(kWholeWarp, most_, step);
      least = low < least ? low : least;
      most_ = high > most_ ? high : most_;
    }
    least_ = least;
  }

  // Whether some row sees key `first`.
  __device__ __forceinline__ bool Sees(uint32_t first) const { return first < most_; }

  // x: the scores of the keys of a tile, -inf where a row does not see them.
  __device__ __forceinline__ void Score(const unsigned char* k, uint32_t first,
                                        float (&x)[kTiles][Shape::kKeys / 8][4]) const {
    SPARKV_UNROLL
    for (uint32_t n = 0; n < Shape::kKeys / 8; ++n) {
      SPARKV_UNROLL
      for (uint32_t i = 0; i < 4 * kTiles; ++i) x[i / 4][n][i % 4] = 0;
    }
    SPARKV_UNROLL
    for (uint32_t step = 0; step < kDim / 16; ++step) {
      uint32_t q[kTiles][4];
      SPARKV_UNROLL
      for (uint32_t t = 0; t < kTiles; ++t) {
        if constexpr (Shape::kQueriesShared) {
          const SharedQuad four = shared_[(step * kTiles + t) * kWarpSize];
          q[t][0] = four.x;
          q[t][1] = four.y;
          q[t][2] = four.z;
          q[t][3] = four.w;
        } else {
          SPARKV_UNROLL
          for (uint32_t i = 0; i < 4; ++i) q[t][i] = q_[step][t][i];
        }
      }
      SPARKV_UNROLL
      for (uint32_t n = 0; n < Shape::kKeys / 16; ++n) {
        uint32_t b[4];
        LoadMatrices(
            b, k + Shape::Place(16 * n + lane_ / 16 * 8 + lane_ % 8, 2 * step, lane_ / 8 % 2));
        SPARKV_UNROLL
        for (uint32_t t = 0; t < kTiles; ++t) {
          MultiplyAdd(x[t][2 * n], q[t], b[0], b[1]);
          MultiplyAdd(x[t][2 * n + 1], q[t], b[2], b[3]);
        }
      }
    }
    SPARKV_UNROLL
    for (uint32_t n = 0; n < Shape::kKeys / 8; ++n) {
      SPARKV_UNROLL
      for (uint32_t i = 0; i < 4 * kTiles; ++i) x[i / 4][n][i % 4] *= scale_;
    }
    if (first + Shape::kKeys <= least_) return;
    SPARKV_UNROLL
    for (uint32_t i = 0; i < 4 * kTiles; ++i) {
      // How many of the tile's keys, from this lane's on, the row sees.
      const auto sees = static_cast<int>(sees_[i / 2] - (first + 2 * (lane_ % 4) + i % 2));
      SPARKV_UNROLL
      for (uint32_t n = 0; n < Shape::kKeys / 8; ++n) {
        if (static_cast<int>(8 * n) >= sees) x[i / 4][n][i % 4] = -INFINITY;
      }
    }
  }

  // One tile of keys and values. skip: BlockAttentionArgs' skip_below in units of log 2.
  __device__ __forceinline__ void Attend(const unsigned char* k, const unsigned char* v,
                                         uint32_t first, float skip) {
    float x[kTiles][Shape::kKeys / 8][4];
    Score(k, first, x);
    uint32_t p[kTiles][Shape::kKeys / 16][4];
    bool none = true;  // of the rows needs the values
    SPARKV_UNROLL
    for (uint32_t half = 0; half < kHalves; ++half)
      none &= Softmax(half, skip, x[half / 2], p[half / 2]);
    if (__all_sync(kWholeWarp, none)) return;
    SPARKV_UNROLL
    for (uint32_t step = 0; step < Shape::kKeys / 16; ++step) {
      SPARKV_UNROLL
      for (uint32_t n = 0; n < kDim / 16; ++n) {
        uint32_t b[4];
        LoadMatricesTransposed(
            b, v + Shape::Place(16 * step + lane_ / 8 % 2 * 8 + lane_ % 8, 2 * n, lane_ / 16));
        SPARKV_UNROLL
        for (uint32_t t = 0; t < kTiles; ++t) {
          MultiplyAdd(out_[t][2 * n], p[t][step], b[0], b[1]);
          MultiplyAdd(out_[t][2 * n + 1], p[t][step], b[2], b[3]);
        }
      }
    }
  }

  // NaN for the rows that see a value that isn't finite, in its column: how many they see is a
  // product as well.
  __device__ __forceinline__ void MarkOthers(const unsigned char* v, uint32_t first) {
    SPARKV_UNROLL
    for (uint32_t n = 0; n < kDim / 16; ++n) {
      __syncwarp();  // keeps the loads of one n from the next, whose registers would be missing
      float seen[kTiles][2][4] = {};
      SPARKV_NO_UNROLL
      for (uint32_t step = 0; step < Shape::kKeys / 16; ++step) {
        uint32_t b[4];
        LoadMatricesTransposed(
            b, v + Shape::Place(16 * step + lane_ / 8 % 2 * 8 + lane_ % 8, 2 * n, lane_ / 16));
        SPARKV_UNROLL
        for (uint32_t i = 0; i < 4; ++i) b[i] = OthersAsOne(b[i]);
        const uint32_t key = first + 16 * step + 2 * (lane_ % 4);
        SPARKV_UNROLL
        for (uint32_t t = 0; t < kTiles; ++t) {
          uint32_t a[4];
          SPARKV_UNROLL
          for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t low = key + i / 2 * 8, sees = sees_[2 * t + i % 2];
            a[i] = (low < sees ? kHalfOne : 0) | (low + 1 < sees ? kHalfOne << 16 : 0);
          }
          MultiplyAdd(seen[t][0], a, b[0], b[1]);
          MultiplyAdd(seen[t][1], a, b[2], b[3]);
        }
      }
      SPARKV_UNROLL
      for (uint32_t i = 0; i < 8 * kTiles; ++i) {
        if (seen[i / 8][i % 8 / 4][i % 4] > 0) out_[i / 8][2 * n + i % 8 / 4][i % 4] = NAN;
      }
    }
  }

  // Once, behind the last tile.
  __device__ __forceinline__ void Finish() {
    SPARKV_UNROLL
    for (uint32_t half = 0; half < kHalves; ++half) {
      sum_[half] += __shfl_xor_sync(kWholeWarp, sum_[half], 1);
      sum_[half] += __shfl_xor_sync(kWholeWarp, sum_[half], 2);
    }
  }

  __device__ __forceinline__ float max(uint32_t half) const { return max_[half]; }
  __device__ __forceinline__ float sum(uint32_t half) const { return sum_[half]; }
  __device__ __forceinline__ bool there(uint32_t half) const { return sees_[half] > 0; }

  // This lane's part of a row, times `factor`.
  __device__ __forceinline__ void Store(uint32_t half, float factor, float* row) const {
    SPARKV_UNROLL
    for (uint32_t n = 0; n < kDim / 8; ++n) {
      const float* const pair = out_[half / 2][n] + half % 2 * 2;
      row[8 * n + 2 * (lane_ % 4)] = pair[0] * factor;
      row[8 * n + 2 * (lane_ % 4) + 1] = pair[1] * factor;
    }
  }

 private:
  // One half of the rows: weights p of scores x, and what was summed so far brought to the new
  // maximum. Whether the rows may skip the tile's values; then p is 0.
  __device__ __forceinline__ bool Softmax(uint32_t half, float skip,
                                          const float (&x)[Shape::kKeys / 8][4],
                                          uint32_t (&p)[Shape::kKeys / 16][4]) {
    const uint32_t at = half % 2 * 2;  // of the row's values in c of a fragment
    float tile_max = -INFINITY;
    SPARKV_UNROLL
    for (uint32_t n = 0; n < Shape::kKeys / 8; ++n) {
      tile_max = fmaxf(tile_max, fmaxf(x[n][at], x[n][at + 1]));
    }
    tile_max = fmaxf(tile_max, __shfl_xor_sync(kWholeWarp, tile_max, 1));
    tile_max = fmaxf(tile_max, __shfl_xor_sync(kWholeWarp, tile_max, 2));
    const float before = max_[half], now = fmaxf(before, tile_max);
    const bool skipped = (skip > 0 && tile_max < before - skip) || !there(half);
    const float base = now == -INFINITY ? 0 : now;
    const float factor = Exp2(before - base);
    float sum = 0;
    SPARKV_UNROLL
    for (uint32_t n = 0; n < Shape::kKeys / 8; ++n) {
      const float low = Exp2(x[n][at] - base), high = Exp2(x[n][at + 1] - base);
      sum += low + high;
      p[n / 2][2 * (n % 2) + half % 2] = skipped ? 0 : PackHalves(low, high);
    }
    max_[half] = now;
    sum_[half] = sum_[half] * factor + sum;
    SPARKV_UNROLL
    for (uint32_t n = 0; n < kDim / 8; ++n) {
      out_[half / 2][n][at] *= factor;
      out_[half / 2][n][at + 1] *= factor;
    }
    return skipped;
  }

  const float scale_;
  const uint32_t lane_;
  uint32_t least_, most_;  // keys that all rows see; behind the last that one sees
  uint32_t sees_[kHalves];
  SharedQuad* const shared_;                                           // this lane's queries, or
  uint32_t q_[Shape::kQueriesShared ? 1 : kDim / 16][kTiles][4] = {};  // here
  float max_[kHalves];
  float sum_[kHalves] = {};
  float out_[kTiles][kDim / 8][4] = {};
};

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
