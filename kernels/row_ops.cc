#include "kernels/row_ops.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu_features.h"
#include "kernels/exp_avx2.h"

namespace sparkv::kernels {
namespace {

#if defined(__x86_64__)
SPARKV_AVX2 void RmsNormAvx2(const float* x, const float* weight, float epsilon, float* y,
                             size_t n) {
  __m256 a = _mm256_setzero_ps(), b = a;
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256 u = _mm256_loadu_ps(x + i), v = _mm256_loadu_ps(x + i + 8);
    a = _mm256_fmadd_ps(u, u, a);
    b = _mm256_fmadd_ps(v, v, b);
  }
  float sum = internal::Sum8(_mm256_add_ps(a, b));
  for (; i < n; ++i) sum += x[i] * x[i];
  const float factor = 1.0f / std::sqrt(sum / static_cast<float>(n) + epsilon);
  const __m256 f = _mm256_set1_ps(factor);
  for (i = 0; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), f),
                                          _mm256_loadu_ps(weight + i)));
  }
  for (; i < n; ++i) y[i] = x[i] * factor * weight[i];
}

SPARKV_AVX2 void SiluMulAvx2(const float* gate, const float* up, float* out, size_t n) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 sign = _mm256_set1_ps(-0.0f);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 g = _mm256_loadu_ps(gate + i);
    const __m256 e = internal::Exp8(_mm256_xor_ps(g, sign));
    const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, e));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(silu, _mm256_loadu_ps(up + i)));
  }
  SiluMulScalar(gate + i, up + i, out + i, n - i);
}

// In units of log2, so that one multiply-add and 2^x make a weight. What is subtracted is a rounded
// product, the same for all blocks with the same maximum, and the factor is made of it too.
SPARKV_AVX2 float SoftmaxBlockAvx2(float* x, size_t n, float scale, float* max, float* sum) {
  if (n == 0) return 1.0f;
  constexpr float kLog2E = 1.44269504088896341f;
  // The largest before it is scaled; with a negative scale, of what is negated.
  const __m256 sign = _mm256_set1_ps(scale < 0 ? -0.0f : 0.0f);
  __m256 high = _mm256_set1_ps(-INFINITY), high2 = high;
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    high = _mm256_max_ps(high, _mm256_xor_ps(_mm256_loadu_ps(x + i), sign));
    high2 = _mm256_max_ps(high2, _mm256_xor_ps(_mm256_loadu_ps(x + i + 8), sign));
  }
  high = _mm256_max_ps(high, high2);
  for (; i + 8 <= n; i += 8)
    high = _mm256_max_ps(high, _mm256_xor_ps(_mm256_loadu_ps(x + i), sign));
  __m128 h = _mm_max_ps(_mm256_castps256_ps128(high), _mm256_extractf128_ps(high, 1));
  h = _mm_max_ps(h, _mm_movehl_ps(h, h));
  const float largest = _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
  float highest = i == 0 ? *max : std::max(*max, largest * std::fabs(scale));
  for (size_t j = i; j < n; ++j) highest = std::max(highest, x[j] * scale);
  const float shift2 = highest * kLog2E;
  const __m256 shift = _mm256_set1_ps(shift2), s = _mm256_set1_ps(scale * kLog2E);
  __m256 total = _mm256_setzero_ps();
  for (i = 0; i + 8 <= n; i += 8) {
    const __m256 e = internal::Exp2Below8(_mm256_fmsub_ps(_mm256_loadu_ps(x + i), s, shift));
    _mm256_storeu_ps(x + i, e);
    total = _mm256_add_ps(total, e);
  }
  float rest = 0;
  for (; i < n; ++i) rest += x[i] = std::exp2(x[i] * (scale * kLog2E) - shift2);
  const float factor = highest == *max ? 1.0f : std::exp2(*max * kLog2E - shift2);
  *sum = *sum * factor + internal::Sum8(total) + rest;
  *max = highest;
  return factor;
}

SPARKV_AVX2 void RopeInterleavedAvx2(float* x, const float* cos, const float* sin, size_t pairs) {
  size_t i = 0;
  for (; i + 4 <= pairs; i += 4) {
    const __m256 v = _mm256_loadu_ps(x + 2 * i);
    const __m128 c = _mm_loadu_ps(cos + i), s = _mm_loadu_ps(sin + i);
    const __m256 cc = _mm256_set_m128(_mm_unpackhi_ps(c, c), _mm_unpacklo_ps(c, c));
    const __m256 ss = _mm256_set_m128(_mm_unpackhi_ps(s, s), _mm_unpacklo_ps(s, s));
    const __m256 swapped = _mm256_permute_ps(v, 0xB1);
    _mm256_storeu_ps(x + 2 * i, _mm256_fmaddsub_ps(v, cc, _mm256_mul_ps(swapped, ss)));
  }
  RopeInterleavedScalar(x + 2 * i, cos + i, sin + i, pairs - i);
}
#endif

}  // namespace

void RmsNormScalar(const float* x, const float* weight, float epsilon, float* y, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  const float factor = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + epsilon));
  for (size_t i = 0; i < n; ++i) y[i] = x[i] * factor * weight[i];
}

void RmsNorm(const float* x, const float* weight, float epsilon, float* y, size_t n) {
#if defined(__x86_64__)
  if (HasAvx2()) return RmsNormAvx2(x, weight, epsilon, y, n);
#endif
  RmsNormScalar(x, weight, epsilon, y, n);
}

void SiluMulScalar(const float* gate, const float* up, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

void SiluMul(const float* gate, const float* up, float* out, size_t n) {
#if defined(__x86_64__)
  if (HasAvx2()) return SiluMulAvx2(gate, up, out, n);
#endif
  SiluMulScalar(gate, up, out, n);
}

void AddInto(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] += x[i];
}

void RopeInterleavedScalar(float* x, const float* cos, const float* sin, size_t pairs) {
  for (size_t i = 0; i < pairs; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cos[i] - b * sin[i];
    x[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

void RopeInterleaved(float* x, const float* cos, const float* sin, size_t pairs) {
#if defined(__x86_64__)
  if (HasAvx2()) return RopeInterleavedAvx2(x, cos, sin, pairs);
#endif
  RopeInterleavedScalar(x, cos, sin, pairs);
}

void RopeSplitHalf(float* x, const float* cos, const float* sin, size_t pairs) {
  for (size_t i = 0; i < pairs; ++i) {
    const float a = x[i], b = x[i + pairs];
    x[i] = a * cos[i] - b * sin[i];
    x[i + pairs] = b * cos[i] + a * sin[i];
  }
}

float SoftmaxBlockScalar(float* x, size_t n, float scale, float* max, float* sum) {
  if (n == 0) return 1.0f;
  float highest = *max;
  for (size_t i = 0; i < n; ++i) highest = std::max(highest, x[i] * scale);
  double total = 0;
  for (size_t i = 0; i < n; ++i) total += x[i] = std::exp(x[i] * scale - highest);
  const float factor = std::exp(*max - highest);
  *sum = *sum * factor + static_cast<float>(total);
  *max = highest;
  return factor;
}

float SoftmaxBlock(float* x, size_t n, float scale, float* max, float* sum) {
#if defined(__x86_64__)
  if (HasAvx2()) return SoftmaxBlockAvx2(x, n, scale, max, sum);
#endif
  return SoftmaxBlockScalar(x, n, scale, max, sum);
}

}  // namespace sparkv::kernels
