// Expansion of one 32-value block into four AVX2 registers, shared by dequantization and matrix-vector products.
// A decoder yields integers q and a scale d and minimum m with value = d * q + m. Include only in .cc files, inside
// functions with the target attribute below.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define SPARKV_AVX2 __attribute__((target("avx2,fma,f16c")))
#define SPARKV_AVX2_INLINE __attribute__((target("avx2,fma,f16c"), always_inline)) inline

namespace sparkv::kernels::internal {

struct Block32 {
  __m256 q[4];  // values 0..7, 8..15, 16..23, 24..31, before scaling
};

SPARKV_AVX2_INLINE float LoadHalf(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

SPARKV_AVX2_INLINE __m256 Widen8(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }

SPARKV_AVX2_INLINE Block32 FromNibbles(const uint8_t* p) {
  const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i mask = _mm_set1_epi8(0xF);
  const __m128i low = _mm_and_si128(raw, mask);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(raw, 4), mask);
  return {{Widen8(low), Widen8(_mm_srli_si128(low, 8)), Widen8(high), Widen8(_mm_srli_si128(high, 8))}};
}

struct DecodeQ4_0 {
  static constexpr int kBytes = 18;
  static constexpr bool kHasMinimum = true;  // value = d * q - 8 d
  SPARKV_AVX2_INLINE static Block32 Values(const uint8_t* s) { return FromNibbles(s + 2); }
  SPARKV_AVX2_INLINE static float Scale(const uint8_t* s) { return LoadHalf(s); }
  SPARKV_AVX2_INLINE static float Minimum(const uint8_t* s) { return -8.0f * LoadHalf(s); }
};

struct DecodeQ4_1 {
  static constexpr int kBytes = 20;
  static constexpr bool kHasMinimum = true;
  SPARKV_AVX2_INLINE static Block32 Values(const uint8_t* s) { return FromNibbles(s + 4); }
  SPARKV_AVX2_INLINE static float Scale(const uint8_t* s) { return LoadHalf(s); }
  SPARKV_AVX2_INLINE static float Minimum(const uint8_t* s) { return LoadHalf(s + 2); }
};

struct DecodeQ8_0 {
  static constexpr int kBytes = 34;
  static constexpr bool kHasMinimum = false;
  SPARKV_AVX2_INLINE static Block32 Values(const uint8_t* s) {
    Block32 b;
    for (int i = 0; i < 4; ++i) {
      b.q[i] = Widen8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(s + 2 + 8 * i)));
    }
    return b;
  }
  SPARKV_AVX2_INLINE static float Scale(const uint8_t* s) { return LoadHalf(s); }
  SPARKV_AVX2_INLINE static float Minimum(const uint8_t*) { return 0.0f; }
};

// The unquantized types, read 32 values at a time with scale 1.
struct DecodeF16 {
  static constexpr int kBytes = 64;
  static constexpr bool kHasMinimum = false;
  SPARKV_AVX2_INLINE static Block32 Values(const uint8_t* s) {
    Block32 b;
    for (int i = 0; i < 4; ++i) {
      b.q[i] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(s + 16 * i)));
    }
    return b;
  }
  SPARKV_AVX2_INLINE static float Scale(const uint8_t*) { return 1.0f; }
  SPARKV_AVX2_INLINE static float Minimum(const uint8_t*) { return 0.0f; }
};

struct DecodeBF16 {
  static constexpr int kBytes = 64;
  static constexpr bool kHasMinimum = false;
  SPARKV_AVX2_INLINE static Block32 Values(const uint8_t* s) {
    Block32 b;
    for (int i = 0; i < 4; ++i) {
      const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(s + 16 * i));
      b.q[i] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
    }
    return b;
  }
  SPARKV_AVX2_INLINE static float Scale(const uint8_t*) { return 1.0f; }
  SPARKV_AVX2_INLINE static float Minimum(const uint8_t*) { return 0.0f; }
};

struct DecodeF32 {
  static constexpr int kBytes = 128;
  static constexpr bool kHasMinimum = false;
  SPARKV_AVX2_INLINE static Block32 Values(const uint8_t* s) {
    Block32 b;
    for (int i = 0; i < 4; ++i) b.q[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(s + 32 * i));
    return b;
  }
  SPARKV_AVX2_INLINE static float Scale(const uint8_t*) { return 1.0f; }
  SPARKV_AVX2_INLINE static float Minimum(const uint8_t*) { return 0.0f; }
};

}  // namespace sparkv::kernels::internal
#endif
