// The AVX2 twin of RansPutRun: 32 lanes are four registers, a table of up to 8 symbols three.
#include "kernels/rans_encode_cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <array>

#define SPARKV_AVX2 __attribute__((target("avx2,fma,popcnt")))
#define SPARKV_AVX2_INLINE __attribute__((target("avx2,fma,popcnt"), always_inline)) inline

namespace sparkv::kernels::internal {
namespace {

// [mask][16]: byte numbers that move the words whose bit is set to the right end of eight, in their
// order.
constexpr auto kRightmost = [] {
  std::array<std::array<uint8_t, 16>, 256> table{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    int to = 7;
    for (int word = 7; word >= 0; --word) {
      if ((mask >> word & 1) == 0) continue;
      table[mask][static_cast<size_t>(2 * to)] = static_cast<uint8_t>(2 * word);
      table[mask][static_cast<size_t>(2 * to + 1)] = static_cast<uint8_t>(2 * word + 1);
      --to;
    }
  }
  return table;
}();

struct Table {
  __m256i frequency, start;
  __m256 reciprocal;
};

// Eight lanes whose symbols are at `in`.
SPARKV_AVX2_INLINE __m256i Put(const Table& table, const uint8_t* in, __m256i x, uint16_t** next) {
  const __m256i symbol =
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(in)));
  const __m256i f = _mm256_permutevar8x32_epi32(table.frequency, symbol);
  const __m256i below_f = _mm256_add_epi32(f, _mm256_set1_epi32(-1));
  const __m256i full = _mm256_cmpgt_epi32(_mm256_srli_epi32(x, 32 - kRansFrequencyBits), below_f);
  const auto mask = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(full)));
  const __m256i low = _mm256_and_si256(x, _mm256_set1_epi32(0xFFFF));
  const __m128i words =
      _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  const __m128i order = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kRightmost[mask].data()));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(*next - 8), _mm_shuffle_epi8(words, order));
  *next -= __builtin_popcount(mask);
  x = _mm256_blendv_epi8(x, _mm256_srli_epi32(x, 16), full);

  // x / f, below 2^20, in f32: each of three roundings errs by 2^-24 of it at most, so by one at
  // most after cutting, which the remainder shows.
  const __m256 value =
      _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(x, 16)), _mm256_set1_ps(65536.0f),
                      _mm256_cvtepi32_ps(_mm256_and_si256(x, _mm256_set1_epi32(0xFFFF))));
  __m256i quotient =
      _mm256_cvttps_epi32(_mm256_mul_ps(value, _mm256_permutevar8x32_ps(table.reciprocal, symbol)));
  __m256i rest = _mm256_sub_epi32(x, _mm256_mullo_epi32(quotient, f));
  const __m256i below = _mm256_srai_epi32(rest, 31);
  quotient = _mm256_add_epi32(quotient, below);
  rest = _mm256_add_epi32(rest, _mm256_and_si256(f, below));
  const __m256i above = _mm256_cmpgt_epi32(rest, below_f);
  quotient = _mm256_sub_epi32(quotient, above);
  rest = _mm256_sub_epi32(rest, _mm256_and_si256(f, above));
  return _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(quotient, kRansFrequencyBits), rest),
                          _mm256_permutevar8x32_epi32(table.start, symbol));
}

}  // namespace

SPARKV_AVX2 void RansPutRunAvx2(const RansSymbol* table, uint32_t alphabet, const uint8_t* in,
                                uint32_t length, uint32_t* states, uint16_t** next) {
  alignas(32) uint32_t frequency[8] = {}, start[8] = {};
  alignas(32) float reciprocal[8] = {};
  for (uint32_t s = 0; s < alphabet; ++s) {
    frequency[s] = table[s].frequency;
    start[s] = table[s].start;
    if (frequency[s] > 0) reciprocal[s] = 1.0f / static_cast<float>(frequency[s]);
  }
  const Table t = {_mm256_load_si256(reinterpret_cast<const __m256i*>(frequency)),
                   _mm256_load_si256(reinterpret_cast<const __m256i*>(start)),
                   _mm256_load_ps(reciprocal)};
  uint16_t* to = *next;
  uint32_t j = length;
  for (; j % kRansLanes != 0; --j) RansPut(table[in[j - 1]], &states[(j - 1) % kRansLanes], &to);
  __m256i* const lanes = reinterpret_cast<__m256i*>(states);
  __m256i x0 = _mm256_loadu_si256(lanes), x1 = _mm256_loadu_si256(lanes + 1);
  __m256i x2 = _mm256_loadu_si256(lanes + 2), x3 = _mm256_loadu_si256(lanes + 3);
  for (; j > 0; j -= kRansLanes) {
    const uint8_t* group = in + j - kRansLanes;
    x3 = Put(t, group + 24, x3, &to);
    x2 = Put(t, group + 16, x2, &to);
    x1 = Put(t, group + 8, x1, &to);
    x0 = Put(t, group, x0, &to);
  }
  _mm256_storeu_si256(lanes, x0);
  _mm256_storeu_si256(lanes + 1, x1);
  _mm256_storeu_si256(lanes + 2, x2);
  _mm256_storeu_si256(lanes + 3, x3);
  *next = to;
}

}  // namespace sparkv::kernels::internal
#endif
