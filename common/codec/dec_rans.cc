#include "common/codec/dec_rans.h"

#include <cstring>

#include "kernels/cpu_features.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sparkv {
namespace {

struct Lanes {
  uint32_t x[kRansLanes];
};

bool LoadStates(const RansInput& in, Lanes* lanes) {
  const uint32_t n = RansLanes(in.length);
  if (in.states.size() != size_t{4} * n) return false;
  for (uint32_t i = 0; i < kRansLanes; ++i) lanes->x[i] = kRansLowerBound;
  std::memcpy(lanes->x, in.states.data(), size_t{4} * n);
  for (uint32_t i = 0; i < n; ++i) {
    if (lanes->x[i] < kRansLowerBound) return false;
  }
  return true;
}

bool AtEnd(const Lanes& lanes, const uint8_t* next, const uint8_t* end) {
  for (uint32_t x : lanes.x) {
    if (x != kRansLowerBound) return false;
  }
  return next == end;
}

// The next n <= 32 symbols, one for each lane from lane 0. False when the words run out.
inline bool DecodeGroup(const uint32_t* entries, uint32_t n, int shift, uint32_t* x,
                        const uint8_t** words, const uint8_t* end, uint8_t* out) {
  const uint8_t* next = *words;
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t e = entries[x[i] & (kRansFrequencySum - 1)];
    uint32_t s = (((e >> 8) & 0xFFF) + 1) * (x[i] >> kRansFrequencyBits) + (e >> 20);
    if (s < kRansLowerBound) {
      if (end - next < 2) return false;
      uint16_t word;
      std::memcpy(&word, next, 2);
      next += 2;
      s = (s << 16) | word;
    }
    x[i] = s;
    out[i] = static_cast<uint8_t>((uint32_t{out[i]} << shift) | (e & 0xFF));
  }
  *words = next;
  return true;
}

#if defined(__x86_64__)
#define SPARKV_AVX2 __attribute__((target("avx2")))

// For each 8-bit mask of lanes that take a word: where in the next 8 words each lane's word is.
struct SpreadTable {
  alignas(32) uint32_t index[256][8];
};
constexpr SpreadTable MakeSpread() {
  SpreadTable t{};
  for (int mask = 0; mask < 256; ++mask) {
    uint32_t next = 0;
    for (int lane = 0; lane < 8; ++lane) {
      t.index[mask][lane] = next;
      if ((mask >> lane) & 1) ++next;
    }
  }
  return t;
}
constexpr SpreadTable kSpread = MakeSpread();

SPARKV_AVX2 inline __m256i StepAvx2(const uint32_t* entries, __m256i* x, const uint8_t** next) {
  const __m256i slot_mask = _mm256_set1_epi32(kRansFrequencySum - 1);
  const __m256i e = _mm256_i32gather_epi32(reinterpret_cast<const int*>(entries),
                                           _mm256_and_si256(*x, slot_mask), 4);
  const __m256i f =
      _mm256_add_epi32(_mm256_and_si256(_mm256_srli_epi32(e, 8), slot_mask), _mm256_set1_epi32(1));
  const __m256i s = _mm256_add_epi32(
      _mm256_mullo_epi32(f, _mm256_srli_epi32(*x, kRansFrequencyBits)), _mm256_srli_epi32(e, 20));
  // Below 2^16: the upper half is zero.
  const __m256i take = _mm256_cmpeq_epi32(_mm256_srli_epi32(s, 16), _mm256_setzero_si256());
  const int mask = _mm256_movemask_ps(_mm256_castsi256_ps(take));
  const __m256i words =
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(*next)));
  const __m256i spread = _mm256_permutevar8x32_epi32(
      words, _mm256_load_si256(reinterpret_cast<const __m256i*>(kSpread.index[mask])));
  const __m256i refilled = _mm256_or_si256(_mm256_slli_epi32(s, 16), spread);
  *x = _mm256_blendv_epi8(s, refilled, take);
  *next += 2 * __builtin_popcount(static_cast<unsigned>(mask));
  return _mm256_and_si256(e, _mm256_set1_epi32(0xFF));
}

SPARKV_AVX2 bool RansDecodeAvx2(const RansInput& in, uint8_t* out) {
  Lanes lanes;
  if (!LoadStates(in, &lanes)) return false;
  const uint8_t* next = in.words.data();
  const uint8_t* const end = next + in.words.size();
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m128i shift = _mm_cvtsi32_si128(in.shift);
  // Bits that a byte's left-hand neighbour would receive from a 16-bit shift are cut off.
  const __m256i keep = _mm256_set1_epi8(static_cast<char>(0xFF << in.shift));
  for (const uint8_t table : in.table_of_run) {
    const uint32_t* entries = in.tables[table].entry;
    uint32_t done = 0;
    __m256i x[4];
    for (int v = 0; v < 4; ++v) {
      x[v] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lanes.x + 8 * v));
    }
    // A group takes at most 32 words; each step may look at up to 8 words behind what it takes.
    for (; in.length - done >= 32 && end - next >= 2 * (32 + 8); done += 32) {
      __m256i s[4];
      for (int v = 0; v < 4; ++v) s[v] = StepAvx2(entries, &x[v], &next);
      __m256i bytes = _mm256_permutevar8x32_epi32(
          _mm256_packus_epi16(_mm256_packus_epi32(s[0], s[1]), _mm256_packus_epi32(s[2], s[3])),
          order);
      __m256i* dst = reinterpret_cast<__m256i*>(out + done);
      if (in.shift != 0) {
        const __m256i old =
            _mm256_and_si256(_mm256_sll_epi16(_mm256_loadu_si256(dst), shift), keep);
        bytes = _mm256_or_si256(bytes, old);
      }
      _mm256_storeu_si256(dst, bytes);
    }
    for (int v = 0; v < 4; ++v) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes.x + 8 * v), x[v]);
    }
    const int scalar_shift = in.shift == 0 ? 8 : in.shift;
    while (done < in.length) {
      const uint32_t n = std::min(kRansLanes, in.length - done);
      if (!DecodeGroup(entries, n, scalar_shift, lanes.x, &next, end, out + done)) return false;
      done += n;
    }
    out += in.length;
  }
  return AtEnd(lanes, next, end);
}
#endif

}  // namespace

void RansTable::Build(std::span<const uint32_t> frequencies) {
  uint32_t slot = 0;
  for (uint32_t s = 0; s < frequencies.size(); ++s) {
    const uint32_t f = frequencies[s];
    const uint32_t base = s | ((f - 1) & 0xFFF) << 8;
    for (uint32_t i = 0; i < f; ++i) entry[slot + i] = base | i << 20;
    slot += f;
  }
}

bool RansDecodeScalar(const RansInput& in, uint8_t* out) {
  Lanes lanes;
  if (!LoadStates(in, &lanes)) return false;
  const uint8_t* next = in.words.data();
  const uint8_t* const end = next + in.words.size();
  const int shift = in.shift == 0 ? 8 : in.shift;  // 8: the old byte goes entirely
  for (const uint8_t table : in.table_of_run) {
    for (uint32_t done = 0; done < in.length; done += kRansLanes) {
      const uint32_t n = std::min(kRansLanes, in.length - done);
      if (!DecodeGroup(in.tables[table].entry, n, shift, lanes.x, &next, end, out + done)) {
        return false;
      }
    }
    out += in.length;
  }
  return AtEnd(lanes, next, end);
}

bool RansDecode(const RansInput& in, uint8_t* out) {
#if defined(__x86_64__)
  static const bool kHasAvx2 = kernels::HasAvx2();
  if (kHasAvx2) return RansDecodeAvx2(in, out);
#endif
  return RansDecodeScalar(in, out);
}

}  // namespace sparkv
