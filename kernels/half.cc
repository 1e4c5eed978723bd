#include "kernels/half.h"

#include <bit>

#include "kernels/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sparkv::kernels {

float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1F;
  uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1F) {  // infinity, or NaN made quiet as the hardware does
    return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13) |
                                (mantissa != 0 ? 0x400000u : 0));
  }
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // Subnormal: mantissa * 2^-24 is exact in f32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u)
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  if (magnitude >= 0x477FF000u)
    return static_cast<uint16_t>(sign | 0x7C00u);  // rounds beyond 65504
  if (magnitude < 0x38800000u) {
    // Subnormal or zero: adding 0.5 puts the f16 unit 2^-24 at the f32 unit, so the FPU rounds to
    // even.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3F000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13));
}

void HalfToFloatScalar(const uint16_t* src, float* dst, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] = HalfToFloat(src[i]);
}

void FloatToHalfScalar(const float* src, uint16_t* dst, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] = FloatToHalf(src[i]);
}

#if defined(__x86_64__)
namespace {

__attribute__((target("avx2,f16c"))) void HalfToFloatAvx2(const uint16_t* src, float* dst,
                                                          size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(dst + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i))));
  }
  HalfToFloatScalar(src + i, dst + i, n - i);
}

__attribute__((target("avx2,f16c"))) void FloatToHalfAvx2(const float* src, uint16_t* dst,
                                                          size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(dst + i),
        _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  FloatToHalfScalar(src + i, dst + i, n - i);
}

}  // namespace
#endif

void HalfToFloat(const uint16_t* src, float* dst, size_t n) {
#if defined(__x86_64__)
  if (HasAvx2()) return HalfToFloatAvx2(src, dst, n);
#endif
  HalfToFloatScalar(src, dst, n);
}

void FloatToHalf(const float* src, uint16_t* dst, size_t n) {
#if defined(__x86_64__)
  if (HasAvx2()) return FloatToHalfAvx2(src, dst, n);
#endif
  FloatToHalfScalar(src, dst, n);
}

}  // namespace sparkv::kernels
