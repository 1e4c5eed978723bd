// The AVX2 twin of RansThirds: 32 lanes are four registers.
#include "kernels/rans_refill_avx2.h"
#include "kernels/rans_thirds_cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>

namespace sparkv::kernels::internal {
namespace {

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
  *x = Refill(s, next);

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

}  // namespace

SPARKV_AVX2 bool RansThirdsAvx2(const ThirdsInput& in, int16_t* values) {
  RansStates states;
  if (!LoadRansStates(in.states, in.length, &states)) return false;
  const uint8_t* next = in.words.data();
  const uint8_t* const end = next + in.words.size();
  for (const ThirdsModel& model : in.model_of_run) {
    const Thresholds t{_mm256_set1_epi32(model.zero_to_one),
                       _mm256_set1_epi32(2 * model.zero_to_one), _mm256_set1_epi32(model.inward),
                       _mm256_set1_epi32(model.inward + model.same)};
    __m256i x[4];
    for (int v = 0; v < 4; ++v) {
      x[v] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(states.x + 8 * v));
    }
    uint32_t done = 0;
    for (; in.length - done >= kRansLanes && end - next >= kRansGroupBytes; done += kRansLanes) {
      for (int v = 0; v < 4; ++v) StepAvx2(t, &x[v], &next, values + done + 8 * v);
    }
    for (int v = 0; v < 4; ++v) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(states.x + 8 * v), x[v]);
    }
    while (done < in.length) {
      const uint32_t n = std::min(kRansLanes, in.length - done);
      if (!ThirdsGroup(model, n, &states, &next, end, values + done)) return false;
      done += n;
    }
    values += in.length;
  }
  return RansAtEnd(states, next, end);
}

}  // namespace sparkv::kernels::internal
#endif
