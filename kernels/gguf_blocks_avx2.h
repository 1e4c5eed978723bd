// Expansion of one 32-value block into four AVX2 registers, shared by dequantization and
// matrix-vector products. A decoder yields integers q and a scale d and minimum m with value = d *
// q + m. Include only in .cc files, inside functions with the target attribute below.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>
#include <cstring>

// GCC 12 at -O3 took a kernel of this kind for a function without side effects, after ivopts had
// rewritten the addresses of its stores, and dropped the calls (the reference test caught it).
// noipa keeps such conclusions out of the callers.
#if defined(__GNUC__) && !defined(__clang__)
#define SPARKV_AVX2 __attribute__((target("avx2,fma,f16c"), noipa))
#else
#define SPARKV_AVX2 __attribute__((target("avx2,fma,f16c")))
#endif
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

SPARKV_AVX2_INLINE __m256 Widen8(__m128i bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

// 32 signed bytes.
SPARKV_AVX2_INLINE Block32 FromBytes(__m256i bytes) {
  const __m128i low = _mm256_castsi256_si128(bytes);
  const __m128i high = _mm256_extracti128_si256(bytes, 1);
  return {
      {Widen8(low), Widen8(_mm_srli_si128(low, 8)), Widen8(high), Widen8(_mm_srli_si128(high, 8))}};
}

// 16 bytes of nibbles as 32 bytes: the low ones, then the high ones.
SPARKV_AVX2_INLINE __m256i Nibbles(const uint8_t* p) {
  const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(raw, 4), raw), _mm256_set1_epi8(0xF));
}

// Byte i is 16 where bit i of the little-endian word at p is set, else 0.
SPARKV_AVX2_INLINE __m256i FifthBits(const uint8_t* p) {
  int bits;
  std::memcpy(&bits, p, sizeof(bits));
  const __m256i spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(bits),
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit),
                          _mm256_set1_epi8(16));
}

struct DecodeQ4_0 {
  static constexpr int kBytes = 18;
  static constexpr bool kHasMinimum = false;
  SPARKV_AVX2_INLINE static Block32 Values(const uint8_t* s) {
    return FromBytes(_mm256_sub_epi8(Nibbles(s + 2), _mm256_set1_epi8(8)));
  }
  SPARKV_AVX2_INLINE static float Scale(const uint8_t* s) { return LoadHalf(s); }
  SPARKV_AVX2_INLINE static float Minimum(const uint8_t*) { return 0.0f; }
};

struct DecodeQ4_1 {
  static constexpr int kBytes = 20;
  static constexpr bool kHasMinimum = true;
  SPARKV_AVX2_INLINE static Block32 Values(const uint8_t* s) { return FromBytes(Nibbles(s + 4)); }
  SPARKV_AVX2_INLINE static float Scale(const uint8_t* s) { return LoadHalf(s); }
  SPARKV_AVX2_INLINE static float Minimum(const uint8_t* s) { return LoadHalf(s + 2); }
};

struct DecodeQ5_0 {
  static constexpr int kBytes = 22;
  static constexpr bool kHasMinimum = false;
  SPARKV_AVX2_INLINE static Block32 Values(const uint8_t* s) {
    return FromBytes(
        _mm256_sub_epi8(_mm256_or_si256(Nibbles(s + 6), FifthBits(s + 2)), _mm256_set1_epi8(16)));
  }
  SPARKV_AVX2_INLINE static float Scale(const uint8_t* s) { return LoadHalf(s); }
  SPARKV_AVX2_INLINE static float Minimum(const uint8_t*) { return 0.0f; }
};

struct DecodeQ5_1 {
  static constexpr int kBytes = 24;
  static constexpr bool kHasMinimum = true;
  SPARKV_AVX2_INLINE static Block32 Values(const uint8_t* s) {
    return FromBytes(_mm256_or_si256(Nibbles(s + 8), FifthBits(s + 4)));
  }
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
    for (int i = 0; i < 4; ++i)
      b.q[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(s + 32 * i));
    return b;
  }
  SPARKV_AVX2_INLINE static float Scale(const uint8_t*) { return 1.0f; }
  SPARKV_AVX2_INLINE static float Minimum(const uint8_t*) { return 0.0f; }
};

}  // namespace sparkv::kernels::internal
#endif
