// The query rows of one warp, which pass over tiles of keys and values with tensor cores and an
// online softmax in registers (FlashAttention-2, Dao 2023). Scores are kept in units of log 2.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/key_tile.h"

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

struct alignas(16) SharedQuad {
  uint32_t x, y, z, w;
};

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

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
