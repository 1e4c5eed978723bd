#include "kernels/rans_refine.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu_features.h"
#include "kernels/rans_constants.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sparkv::kernels {
namespace {

bool LoadStates(const RefineInput& in, uint32_t* x) {
  const uint32_t n = std::min(kRansLanes, in.length);
  if (in.states.size() != size_t{4} * n) return false;
  std::fill_n(x, kRansLanes, kRansLowerBound);
  std::memcpy(x, in.states.data(), size_t{4} * n);
  return std::all_of(x, x + n, [](uint32_t s) { return s >= kRansLowerBound; });
}

bool AtEnd(const uint32_t* x, const uint8_t* next, const uint8_t* end) {
  return next == end &&
         std::all_of(x, x + kRansLanes, [](uint32_t s) { return s == kRansLowerBound; });
}

// The next n <= 32 values, one for each lane from lane 0. False when the words run out.
inline bool RefineGroup(const RefineModel& model, uint32_t n, uint32_t* x, const uint8_t** words,
                        const uint8_t* end, int16_t* values) {
  const uint8_t* next = *words;
  for (uint32_t i = 0; i < n; ++i) {
    const int32_t b = values[i];
    const uint32_t slot = x[i] & (kRansFrequencySum - 1);
    const uint32_t t1 = b == 0 ? model.zero_to_one : model.inward;
    const uint32_t t2 = b == 0 ? 2u * model.zero_to_one : uint32_t{model.inward} + model.same;
    const bool past1 = slot >= t1, past2 = slot >= t2;
    const uint32_t start = past2 ? t2 : past1 ? t1 : 0;
    const uint32_t f = past2 ? kRansFrequencySum - t2 : past1 ? t2 - t1 : t1;
    uint32_t s = f * (x[i] >> kRansFrequencyBits) + slot - start;
    if (s < kRansLowerBound) {
      if (end - next < 2) return false;
      uint16_t word;
      std::memcpy(&word, next, 2);
      next += 2;
      s = (s << 16) | word;
    }
    x[i] = s;
    const int32_t sign = b < 0 ? -1 : 1;
    const int32_t change = b == 0 ? (past2   ? 0
                                     : past1 ? -1
                                             : 1)
                                  : (past2   ? sign
                                     : past1 ? 0
                                             : -sign);
    values[i] = static_cast<int16_t>(3 * b + change);
  }
  *words = next;
  return true;
}

#if defined(__x86_64__)
#define SPARKV_AVX2 __attribute__((target("avx2,popcnt")))

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

struct Thresholds {
  __m256i zero1, zero2, other1, other2;
};

SPARKV_AVX2 inline void StepAvx2(const Thresholds& t, __m256i* x, const uint8_t** next,
                                 int16_t* values) {
  const __m256i sum = _mm256_set1_epi32(kRansFrequencySum);
  const __m256i b =
      _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
  const __m256i zero = _mm256_cmpeq_epi32(b, _mm256_setzero_si256());
  const __m256i t1 = _mm256_blendv_epi8(t.other1, t.zero1, zero);
  const __m256i t2 = _mm256_blendv_epi8(t.other2, t.zero2, zero);
  const __m256i slot = _mm256_and_si256(*x, _mm256_set1_epi32(kRansFrequencySum - 1));
  const __m256i below1 = _mm256_cmpgt_epi32(t1, slot);
  const __m256i below2 = _mm256_cmpgt_epi32(t2, slot);
  // [0, t1), [t1, t2) or [t2, sum).
  const __m256i start = _mm256_blendv_epi8(t2, _mm256_andnot_si256(below1, t1), below2);
  const __m256i stop = _mm256_blendv_epi8(_mm256_blendv_epi8(sum, t2, below2), t1, below1);
  const __m256i f = _mm256_sub_epi32(stop, start);
  const __m256i s =
      _mm256_add_epi32(_mm256_mullo_epi32(f, _mm256_srli_epi32(*x, kRansFrequencyBits)),
                       _mm256_sub_epi32(slot, start));
  const __m256i take = _mm256_cmpeq_epi32(_mm256_srli_epi32(s, 16), _mm256_setzero_si256());
  const int mask = _mm256_movemask_ps(_mm256_castsi256_ps(take));
  const __m256i words =
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(*next)));
  const __m256i spread = _mm256_permutevar8x32_epi32(
      words, _mm256_load_si256(reinterpret_cast<const __m256i*>(kSpread.index[mask])));
  *x = _mm256_blendv_epi8(s, _mm256_or_si256(_mm256_slli_epi32(s, 16), spread), take);
  *next += 2 * __builtin_popcount(static_cast<unsigned>(mask));

  // Of a zero +1, -1, 0 in the three parts of the slots; of another value -sign, 0, +sign.
  const __m256i one = _mm256_set1_epi32(1);
  const __m256i from_zero = _mm256_blendv_epi8(
      _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_and_si256(below2, one)), one, below1);
  const __m256i sign = _mm256_sign_epi32(one, b);
  const __m256i from_other = _mm256_blendv_epi8(
      _mm256_andnot_si256(below2, sign), _mm256_sub_epi32(_mm256_setzero_si256(), sign), below1);
  const __m256i tripled = _mm256_add_epi32(_mm256_add_epi32(b, b), b);
  const __m256i out = _mm256_add_epi32(tripled, _mm256_blendv_epi8(from_other, from_zero, zero));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(values),
                   _mm_packs_epi32(_mm256_castsi256_si128(out), _mm256_extracti128_si256(out, 1)));
}

SPARKV_AVX2 bool RansRefineAvx2(const RefineInput& in, int16_t* values) {
  uint32_t lanes[kRansLanes];
  if (!LoadStates(in, lanes)) return false;
  const uint8_t* next = in.words.data();
  const uint8_t* const end = next + in.words.size();
  for (const RefineModel& model : in.model_of_run) {
    const Thresholds t{_mm256_set1_epi32(model.zero_to_one),
                       _mm256_set1_epi32(2 * model.zero_to_one), _mm256_set1_epi32(model.inward),
                       _mm256_set1_epi32(model.inward + model.same)};
    __m256i x[4];
    for (int v = 0; v < 4; ++v) {
      x[v] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lanes + 8 * v));
    }
    uint32_t done = 0;
    // A group takes at most 32 words; each step may look at up to 8 words behind what it takes.
    for (; in.length - done >= 32 && end - next >= 2 * (32 + 8); done += 32) {
      for (int v = 0; v < 4; ++v) StepAvx2(t, &x[v], &next, values + done + 8 * v);
    }
    for (int v = 0; v < 4; ++v) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes + 8 * v), x[v]);
    }
    while (done < in.length) {
      const uint32_t n = std::min(kRansLanes, in.length - done);
      if (!RefineGroup(model, n, lanes, &next, end, values + done)) return false;
      done += n;
    }
    values += in.length;
  }
  return AtEnd(lanes, next, end);
}
#endif

}  // namespace

bool RansRefineScalar(const RefineInput& in, int16_t* values) {
  uint32_t lanes[kRansLanes];
  if (!LoadStates(in, lanes)) return false;
  const uint8_t* next = in.words.data();
  const uint8_t* const end = next + in.words.size();
  for (const RefineModel& model : in.model_of_run) {
    for (uint32_t done = 0; done < in.length; done += kRansLanes) {
      const uint32_t n = std::min(kRansLanes, in.length - done);
      if (!RefineGroup(model, n, lanes, &next, end, values + done)) return false;
    }
    values += in.length;
  }
  return AtEnd(lanes, next, end);
}

bool RansRefine(const RefineInput& in, int16_t* values) {
#if defined(__x86_64__)
  static const bool kHasAvx2 = HasAvx2();
  if (kHasAvx2) return RansRefineAvx2(in, values);
#endif
  return RansRefineScalar(in, values);
}

}  // namespace sparkv::kernels
