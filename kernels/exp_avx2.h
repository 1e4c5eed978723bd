// exp of eight floats, relative error below 2e-7 on [-87, 88]; smaller arguments give 0. Include
// only in .cc files, inside functions with the target attribute.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/gguf_blocks_avx2.h"

namespace sparkv::kernels::internal {

SPARKV_AVX2_INLINE __m256 Exp8(__m256 x) {
  const __m256 lowest = _mm256_set1_ps(-87.3f);
  const __m256 alive = _mm256_cmp_ps(x, lowest, _CMP_GE_OQ);
  const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  __m256 c = _mm256_min_ps(_mm256_max_ps(x, lowest), _mm256_set1_ps(88.3f));
  // x = n ln2 + r, |r| <= ln2 / 2; ln2 in two parts so that r is exact enough.
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(c, _mm256_set1_ps(1.44269504088896341f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), c);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
  p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
  // 2^n by the exponent bits; n is in [-126, 127].
  const __m256i power =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  const __m256 y = _mm256_and_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(power)), alive);
  return _mm256_blendv_ps(y, x, nan);
}

// 2^x of eight floats x <= 1, relative error below 3e-7; arguments below -126 give 2^-126, a NaN
// gives a NaN.
SPARKV_AVX2_INLINE __m256 Exp2Below8(__m256 x) {
  const __m256 c = _mm256_max_ps(_mm256_set1_ps(-126.0f), x);  // of a NaN: the second operand
  const __m256 n = _mm256_round_ps(c, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 r = _mm256_sub_ps(c, n);  // exact, |r| <= 1/2
  // The polynomial through 2^r at the Chebyshev nodes of [-1/2, 1/2].
  __m256 p = _mm256_set1_ps(1.339086336e-03f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(9.676031918e-03f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.550357114e-02f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(2.402210749e-01f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(6.931471880e-01f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.000000075e+00f));
  // Times 2^n, by adding to the exponent bits.
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
}

SPARKV_AVX2_INLINE float Sum8(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  s = _mm_add_ss(s, _mm_movehdup_ps(s));
  return _mm_cvtss_f32(s);
}

}  // namespace sparkv::kernels::internal
#endif
