#include "kernels/attention_decode.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu_features.h"
#include "kernels/exp_avx2.h"
#include "kernels/half.h"

namespace sparkv::kernels {
namespace {

#if defined(__x86_64__)
using internal::Exp8;
using internal::Sum8;

SPARKV_AVX2_INLINE __m256 Load8(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
SPARKV_AVX2_INLINE __m256 Load8(const float* p) { return _mm256_loadu_ps(p); }

// Query vectors that share one pass: their accumulators fit into registers.
constexpr size_t kTile = 4;

// scores[j][r] = scale q_j . k_r for kGroup vectors.
template <int kGroup, typename T>
SPARKV_AVX2 void Scores(const float* q, const T* k, size_t rows, size_t dim, float scale,
                        float (*scores)[kAttendRows]) {
  for (size_t r = 0; r < rows; ++r) {
    const T* row = k + r * dim;
    __m256 acc[kGroup];
    for (int j = 0; j < kGroup; ++j) acc[j] = _mm256_setzero_ps();
    for (size_t i = 0; i < dim; i += 8) {
      const __m256 x = Load8(row + i);
      for (int j = 0; j < kGroup; ++j) {
        acc[j] = _mm256_fmadd_ps(x, _mm256_loadu_ps(q + j * dim + i), acc[j]);
      }
    }
    for (int j = 0; j < kGroup; ++j) scores[j][r] = Sum8(acc[j]) * scale;
  }
}

// mean_j = factor_j mean_j + sum_r p[j][r] v_r. Sixteen columns at a time stay in registers over
// all rows.
template <int kGroup, typename T>
SPARKV_AVX2 void Values(const float (*p)[kAttendRows], const float* factor, const T* v, size_t rows,
                        size_t dim, float* mean) {
  size_t i = 0;
  for (; i + 16 <= dim; i += 16) {
    __m256 low[kGroup], high[kGroup];
    for (int j = 0; j < kGroup; ++j) {
      const __m256 f = _mm256_set1_ps(factor[j]);
      low[j] = _mm256_mul_ps(f, _mm256_loadu_ps(mean + j * dim + i));
      high[j] = _mm256_mul_ps(f, _mm256_loadu_ps(mean + j * dim + i + 8));
    }
    for (size_t r = 0; r < rows; ++r) {
      const __m256 x = Load8(v + r * dim + i), y = Load8(v + r * dim + i + 8);
      for (int j = 0; j < kGroup; ++j) {
        const __m256 w = _mm256_broadcast_ss(&p[j][r]);
        low[j] = _mm256_fmadd_ps(w, x, low[j]);
        high[j] = _mm256_fmadd_ps(w, y, high[j]);
      }
    }
    for (int j = 0; j < kGroup; ++j) {
      _mm256_storeu_ps(mean + j * dim + i, low[j]);
      _mm256_storeu_ps(mean + j * dim + i + 8, high[j]);
    }
  }
  for (; i < dim; i += 8) {
    __m256 acc[kGroup];
    for (int j = 0; j < kGroup; ++j) {
      acc[j] = _mm256_mul_ps(_mm256_set1_ps(factor[j]), _mm256_loadu_ps(mean + j * dim + i));
    }
    for (size_t r = 0; r < rows; ++r) {
      const __m256 x = Load8(v + r * dim + i);
      for (int j = 0; j < kGroup; ++j) {
        acc[j] = _mm256_fmadd_ps(_mm256_broadcast_ss(&p[j][r]), x, acc[j]);
      }
    }
    for (int j = 0; j < kGroup; ++j) _mm256_storeu_ps(mean + j * dim + i, acc[j]);
  }
}

template <int kGroup, typename T>
SPARKV_AVX2 void Tile(const float* q, const T* k, const T* v, size_t rows, size_t dim, float scale,
                      float* max, float* sum, float* mean) {
  alignas(32) float p[kGroup][kAttendRows];
  float factor[kGroup];
  Scores<kGroup, T>(q, k, rows, dim, scale, p);
  const size_t padded = (rows + 7) / 8 * 8;
  for (int j = 0; j < kGroup; ++j) {
    for (size_t r = rows; r < padded; ++r) p[j][r] = -INFINITY;
    float highest = max[j];
    for (size_t r = 0; r < rows; ++r) highest = std::max(highest, p[j][r]);
    const __m256 shift = _mm256_set1_ps(highest);
    __m256 total = _mm256_setzero_ps();
    for (size_t r = 0; r < padded; r += 8) {
      const __m256 e = Exp8(_mm256_sub_ps(_mm256_load_ps(p[j] + r), shift));
      _mm256_store_ps(p[j] + r, e);
      total = _mm256_add_ps(total, e);
    }
    factor[j] = std::exp(max[j] - highest);
    sum[j] = sum[j] * factor[j] + Sum8(total);
    max[j] = highest;
  }
  Values<kGroup, T>(p, factor, v, rows, dim, mean);
}

template <typename T>
void Avx2(const float* q, size_t group, const T* k, const T* v, size_t rows, size_t dim,
          float scale, const AttentionState& s) {
  for (size_t j = 0; j < group; j += kTile) {
    const float* tile_q = q + j * dim;
    float* mean = s.mean + j * dim;
    switch (std::min(kTile, group - j)) {
      case 1:
        Tile<1, T>(tile_q, k, v, rows, dim, scale, s.max + j, s.sum + j, mean);
        break;
      case 2:
        Tile<2, T>(tile_q, k, v, rows, dim, scale, s.max + j, s.sum + j, mean);
        break;
      case 3:
        Tile<3, T>(tile_q, k, v, rows, dim, scale, s.max + j, s.sum + j, mean);
        break;
      default:
        Tile<4, T>(tile_q, k, v, rows, dim, scale, s.max + j, s.sum + j, mean);
        break;
    }
  }
}
#endif

}  // namespace

void AttendRowsScalar(const float* q, size_t group, const float* k, const float* v, size_t rows,
                      size_t dim, float scale, const AttentionState& state) {
  for (size_t j = 0; j < group; ++j) {
    float p[kAttendRows];
    float highest = state.max[j];
    for (size_t r = 0; r < rows; ++r) {
      double dot = 0;
      for (size_t i = 0; i < dim; ++i) dot += static_cast<double>(q[j * dim + i]) * k[r * dim + i];
      p[r] = static_cast<float>(dot * scale);
      highest = std::max(highest, p[r]);
    }
    const float factor = std::exp(state.max[j] - highest);
    state.sum[j] *= factor;
    for (size_t i = 0; i < dim; ++i) state.mean[j * dim + i] *= factor;
    for (size_t r = 0; r < rows; ++r) {
      const float w = std::exp(p[r] - highest);
      state.sum[j] += w;
      for (size_t i = 0; i < dim; ++i) state.mean[j * dim + i] += w * v[r * dim + i];
    }
    state.max[j] = highest;
  }
}

void AttendRowsF16(const float* q, size_t group, const uint16_t* k, const uint16_t* v, size_t rows,
                   size_t dim, float scale, const AttentionState& state) {
  if (rows == 0) return;
#if defined(__x86_64__)
  if (HasAvx2() && dim % 8 == 0) return Avx2(q, group, k, v, rows, dim, scale, state);
#endif
  std::vector<float> wide(2 * rows * dim);
  HalfToFloat(k, wide.data(), rows * dim);
  HalfToFloat(v, wide.data() + rows * dim, rows * dim);
  AttendRowsScalar(q, group, wide.data(), wide.data() + rows * dim, rows, dim, scale, state);
}

void AttendRowsF32(const float* q, size_t group, const float* k, const float* v, size_t rows,
                   size_t dim, float scale, const AttentionState& state) {
  if (rows == 0) return;
#if defined(__x86_64__)
  if (HasAvx2() && dim % 8 == 0) return Avx2(q, group, k, v, rows, dim, scale, state);
#endif
  AttendRowsScalar(q, group, k, v, rows, dim, scale, state);
}

}  // namespace sparkv::kernels
