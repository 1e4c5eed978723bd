// How eight rANS lanes take their words, for the AVX2 twins.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

#define SPARKV_AVX2 __attribute__((target("avx2,popcnt")))
#define SPARKV_AVX2_INLINE __attribute__((target("avx2,popcnt"), always_inline)) inline

namespace sparkv::kernels::internal {

// For each mask of eight lanes that take a word: the byte shuffle that brings each such lane its
// word from the next eight, and 0 to the others.
struct RansSpread {
  alignas(16) uint8_t control[256][16];
};
constexpr RansSpread MakeRansSpread() {
  RansSpread t{};
  for (int mask = 0; mask < 256; ++mask) {
    uint8_t next = 0;
    for (int lane = 0; lane < 8; ++lane) {
      const bool takes = ((mask >> lane) & 1) != 0;
      t.control[mask][2 * lane] = takes ? next : 0x80;
      t.control[mask][2 * lane + 1] = takes ? next + 1 : 0x80;
      if (takes) next += 2;
    }
  }
  return t;
}
inline constexpr RansSpread kRansSpread = MakeRansSpread();

// Lanes below 2^16 take a word each.
SPARKV_AVX2_INLINE __m256i Refill(__m256i s, const uint8_t** next) {
  const __m256i take = _mm256_cmpeq_epi32(_mm256_srli_epi32(s, 16), _mm256_setzero_si256());
  const auto mask = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(take)));
  const __m128i words =
      _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(*next)),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(kRansSpread.control[mask])));
  *next += 2 * __builtin_popcount(mask);
  const __m256i moved = _mm256_sllv_epi32(s, _mm256_and_si256(take, _mm256_set1_epi32(16)));
  return _mm256_or_si256(moved, _mm256_cvtepu16_epi32(words));
}

}  // namespace sparkv::kernels::internal
#endif
