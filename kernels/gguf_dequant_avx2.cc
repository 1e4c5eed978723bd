// AVX2 twin of DequantizeRow. Every product of scales and integers is exact in f32 but the last one
// or the sum with the minimum, so fused and separate operations round alike and the twins agree to
// the bit.
#include "kernels/gguf_blocks_avx2.h"
#include "kernels/gguf_dequant_cpu.h"

namespace sparkv::kernels::internal {

#if defined(__x86_64__)
namespace {

template <typename Decode>
SPARKV_AVX2 void Blocks(const uint8_t* s, float* y, size_t n) {
  for (size_t b = 0; b < n / 32; ++b, s += Decode::kBytes, y += 32) {
    const Block32 block = Decode::Values(s);
    const __m256 d = _mm256_set1_ps(Decode::Scale(s));
    const __m256 m = _mm256_set1_ps(Decode::Minimum(s));
    for (int i = 0; i < 4; ++i) {
      _mm256_storeu_ps(y + 8 * i, Decode::kHasMinimum ? _mm256_fmadd_ps(d, block.q[i], m)
                                                      : _mm256_mul_ps(d, block.q[i]));
    }
  }
}

// Unquantized rows need not be a multiple of 32 long.
template <typename Decode>
void BlocksThenRest(GgmlType type, const uint8_t* s, float* y, size_t n) {
  const size_t whole = n / 32 * 32;
  Blocks<Decode>(s, y, whole);
  DequantizeScalar(type, s + whole / 32 * Decode::kBytes, y + whole, n - whole);
}

SPARKV_AVX2_INLINE __m256i Load256(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// 16-bit lanes shifted right by a count that the compiler need not know; callers mask the bits of
// neighbours off.
SPARKV_AVX2_INLINE __m256i ShiftRight(__m256i v, int count) {
  return _mm256_srl_epi16(v, _mm_cvtsi32_si128(count));
}

// y[0..32) = d * q + m with one (d, m) for each 16 values.
SPARKV_AVX2_INLINE void Store(__m256i q, float d0, float m0, float d1, float m1, float* y) {
  const Block32 v = FromBytes(q);
  const __m256 scale0 = _mm256_set1_ps(d0), scale1 = _mm256_set1_ps(d1);
  const __m256 minimum0 = _mm256_set1_ps(m0), minimum1 = _mm256_set1_ps(m1);
  _mm256_storeu_ps(y, _mm256_fmadd_ps(scale0, v.q[0], minimum0));
  _mm256_storeu_ps(y + 8, _mm256_fmadd_ps(scale0, v.q[1], minimum0));
  _mm256_storeu_ps(y + 16, _mm256_fmadd_ps(scale1, v.q[2], minimum1));
  _mm256_storeu_ps(y + 24, _mm256_fmadd_ps(scale1, v.q[3], minimum1));
}
SPARKV_AVX2_INLINE void Store(__m256i q, float d0, float d1, float* y) {
  const Block32 v = FromBytes(q);
  const __m256 scale0 = _mm256_set1_ps(d0), scale1 = _mm256_set1_ps(d1);
  _mm256_storeu_ps(y, _mm256_mul_ps(scale0, v.q[0]));
  _mm256_storeu_ps(y + 8, _mm256_mul_ps(scale0, v.q[1]));
  _mm256_storeu_ps(y + 16, _mm256_mul_ps(scale1, v.q[2]));
  _mm256_storeu_ps(y + 24, _mm256_mul_ps(scale1, v.q[3]));
}

SPARKV_AVX2 void Q2_K(const uint8_t* s, float* y, size_t n) {
  const __m256i two = _mm256_set1_epi8(3);
  for (size_t b = 0; b < n / 256; ++b, s += 84) {
    const float d = LoadHalf(s + 80);
    const float dmin = LoadHalf(s + 82);
    const uint8_t* scale = s;
    for (int half = 0; half < 2; ++half) {
      const __m256i raw = Load256(s + 16 + 32 * half);
      for (int quarter = 0; quarter < 4; ++quarter, scale += 2, y += 32) {
        Store(_mm256_and_si256(ShiftRight(raw, 2 * quarter), two),
              d * static_cast<float>(scale[0] & 0xF), -(dmin * static_cast<float>(scale[0] >> 4)),
              d * static_cast<float>(scale[1] & 0xF), -(dmin * static_cast<float>(scale[1] >> 4)),
              y);
      }
    }
  }
}

SPARKV_AVX2 void Q3_K(const uint8_t* s, float* y, size_t n) {
  const __m256i two = _mm256_set1_epi8(3);
  const __m256i four = _mm256_set1_epi8(4);
  for (size_t b = 0; b < n / 256; ++b, s += 110) {
    const float d = LoadHalf(s + 108);
    const __m256i high = Load256(s);
    int8_t scales[16];
    ScalesK3(s + 96, scales);
    const int8_t* scale = scales;
    for (int half = 0; half < 2; ++half) {
      const __m256i raw = Load256(s + 32 + 32 * half);
      for (int quarter = 0; quarter < 4; ++quarter, scale += 2, y += 32) {
        const __m256i low = _mm256_and_si256(ShiftRight(raw, 2 * quarter), two);
        const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << (4 * half + quarter)));
        // Four is taken off where the third bit is clear.
        const __m256i clear =
            _mm256_cmpeq_epi8(_mm256_and_si256(high, bit), _mm256_setzero_si256());
        Store(_mm256_sub_epi8(low, _mm256_and_si256(clear, four)),
              d * static_cast<float>(scale[0] - 32), d * static_cast<float>(scale[1] - 32), y);
      }
    }
  }
}

// Q4_K, and Q5_K with 32 bytes of fifth bits before the nibbles.
template <bool kFive>
SPARKV_AVX2 void Q4Or5_K(const uint8_t* s, float* y, size_t n) {
  const __m256i nibble = _mm256_set1_epi8(0xF);
  const __m256i sixteen = _mm256_set1_epi8(16);
  for (size_t b = 0; b < n / 256; ++b, s += kFive ? 176 : 144) {
    const float d = LoadHalf(s);
    const float dmin = LoadHalf(s + 2);
    const __m256i high = kFive ? Load256(s + 16) : nibble;
    for (int j = 0; j < 8; ++j, y += 32) {
      const __m256i raw = Load256(s + (kFive ? 48 : 16) + 32 * (j / 2));
      __m256i q = _mm256_and_si256(j % 2 == 0 ? raw : _mm256_srli_epi16(raw, 4), nibble);
      if (kFive) {
        const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << j));
        const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(high, bit), bit);
        q = _mm256_or_si256(q, _mm256_and_si256(set, sixteen));
      }
      uint8_t scale, minimum;
      ScaleMinK4(j, s + 4, &scale, &minimum);
      const float dl = d * static_cast<float>(scale);
      const float ml = -(dmin * static_cast<float>(minimum));
      Store(q, dl, ml, dl, ml, y);
    }
  }
}

SPARKV_AVX2 void Q6_K(const uint8_t* s, float* y, size_t n) {
  const __m256i nibble = _mm256_set1_epi8(0xF);
  const __m256i two = _mm256_set1_epi8(3);
  const __m256i offset = _mm256_set1_epi8(32);
  for (size_t b = 0; b < n / 256; ++b, s += 210) {
    const float d = LoadHalf(s + 208);
    const auto* scale = reinterpret_cast<const int8_t*>(s + 192);
    for (int half = 0; half < 2; ++half) {
      const __m256i high = Load256(s + 128 + 32 * half);
      for (int quarter = 0; quarter < 4; ++quarter, scale += 2, y += 32) {
        const __m256i raw = Load256(s + 64 * half + 32 * (quarter & 1));
        const __m256i low = _mm256_and_si256(quarter < 2 ? raw : _mm256_srli_epi16(raw, 4), nibble);
        const __m256i up = _mm256_and_si256(ShiftRight(high, 2 * quarter), two);
        Store(_mm256_sub_epi8(_mm256_or_si256(low, _mm256_slli_epi16(up, 4)), offset),
              d * static_cast<float>(scale[0]), d * static_cast<float>(scale[1]), y);
      }
    }
  }
}

}  // namespace

bool DequantizeAvx2(GgmlType type, const uint8_t* src, float* dst, size_t n) {
  switch (type) {
    case GgmlType::kF16:
      BlocksThenRest<DecodeF16>(type, src, dst, n);
      return true;
    case GgmlType::kBF16:
      BlocksThenRest<DecodeBF16>(type, src, dst, n);
      return true;
    case GgmlType::kQ4_0:
      Blocks<DecodeQ4_0>(src, dst, n);
      return true;
    case GgmlType::kQ4_1:
      Blocks<DecodeQ4_1>(src, dst, n);
      return true;
    case GgmlType::kQ8_0:
      Blocks<DecodeQ8_0>(src, dst, n);
      return true;
    case GgmlType::kQ5_0:
      Blocks<DecodeQ5_0>(src, dst, n);
      return true;
    case GgmlType::kQ5_1:
      Blocks<DecodeQ5_1>(src, dst, n);
      return true;
    case GgmlType::kQ2_K:
      Q2_K(src, dst, n);
      return true;
    case GgmlType::kQ3_K:
      Q3_K(src, dst, n);
      return true;
    case GgmlType::kQ4_K:
      Q4Or5_K<false>(src, dst, n);
      return true;
    case GgmlType::kQ5_K:
      Q4Or5_K<true>(src, dst, n);
      return true;
    case GgmlType::kQ6_K:
      Q6_K(src, dst, n);
      return true;
    default:
      return false;
  }
}
#else
bool DequantizeAvx2(GgmlType, const uint8_t*, float*, size_t) { return false; }
#endif

}  // namespace sparkv::kernels::internal
