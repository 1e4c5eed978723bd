#include "common/codec/dec_values.h"

#include <algorithm>

#include "kernels/cpu_features.h"
#include "kernels/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sparkv {
namespace {

constexpr float kMaxHalf = 65504.0f;

size_t CodesStride(const DequantizeArgs& a) {
  return a.codes_stride == 0 ? a.tokens : a.codes_stride;
}
size_t OutStride(const DequantizeArgs& a) { return a.out_stride == 0 ? a.head_dim : a.out_stride; }

// Tokens [t0, t1) x channels [d0, d1).
void DequantizeRange(const DequantizeArgs& a, uint32_t t0, uint32_t t1, uint32_t d0, uint32_t d1,
                     uint16_t* out) {
  const size_t codes_stride = CodesStride(a);
  const size_t out_stride = OutStride(a);
  for (uint32_t t = t0; t < t1; ++t) {
    for (uint32_t d = d0; d < d1; ++d) {
      const uint32_t p = a.per_channel ? d : t;
      const float q = static_cast<float>(a.codes[d * codes_stride + t]);
      const float c = a.code.scale * q + a.code.offset;
      const float delta = a.step[p] * c;
      const float value = a.lo[p] + delta;
      out[t * out_stride + d] =
          kernels::FloatToHalf(std::min(std::max(value, -kMaxHalf), kMaxHalf));
    }
  }
}

void JoinRange(const uint8_t* high, const uint8_t* low, uint32_t tokens, uint32_t head_dim,
               uint32_t t0, uint32_t t1, uint32_t d0, uint32_t d1, uint16_t* out) {
  for (uint32_t t = t0; t < t1; ++t) {
    for (uint32_t d = d0; d < d1; ++d) {
      const size_t from = size_t{d} * tokens + t;
      out[size_t{t} * head_dim + d] = static_cast<uint16_t>(high[from] << 8 | low[from]);
    }
  }
}

#if defined(__x86_64__)

#define SPARKV_AVX2 __attribute__((target("avx2,f16c")))

// rows[i] holds 16 tokens of channel i; afterwards rows[t] holds 16 channels of token t.
SPARKV_AVX2 inline void LoadTransposed(const uint8_t* in, size_t stride, __m128i* rows) {
  __m128i a[16];
  for (int i = 0; i < 16; ++i) {
    a[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i * stride));
  }
  // Interleaving row i with row i + 8 four times over moves byte (i, j) to (j, i).
  for (int pass = 0; pass < 4; ++pass) {
    for (int i = 0; i < 8; ++i) {
      rows[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]);
      rows[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
    }
    for (int i = 0; i < 16; ++i) a[i] = rows[i];
  }
}

SPARKV_AVX2 inline __m128i Dequantize8(__m128i bytes, __m256 lo, __m256 step, __m256 scale,
                                       __m256 offset) {
  const __m256 q = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
  const __m256 c = _mm256_add_ps(_mm256_mul_ps(scale, q), offset);
  const __m256 value = _mm256_add_ps(lo, _mm256_mul_ps(step, c));
  const __m256 clamped =
      _mm256_min_ps(_mm256_max_ps(value, _mm256_set1_ps(-kMaxHalf)), _mm256_set1_ps(kMaxHalf));
  return _mm256_cvtps_ph(clamped, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

SPARKV_AVX2 void DequantizeHeadAvx2(const DequantizeArgs& a, uint16_t* out) {
  const uint32_t tokens = a.tokens & ~15u;
  const uint32_t channels = a.head_dim & ~15u;
  const size_t codes_stride = CodesStride(a);
  const size_t out_stride = OutStride(a);
  const __m256 scale = _mm256_set1_ps(a.code.scale);
  const __m256 offset = _mm256_set1_ps(a.code.offset);
  for (uint32_t t0 = 0; t0 < tokens; t0 += 16) {
    for (uint32_t d = 0; d < channels; d += 16) {
      __m128i rows[16];
      LoadTransposed(a.codes + d * codes_stride + t0, codes_stride, rows);
      __m256 lo0 = _mm256_setzero_ps(), lo1 = lo0, step0 = lo0, step1 = lo0;
      if (a.per_channel) {
        lo0 = _mm256_loadu_ps(a.lo + d);
        lo1 = _mm256_loadu_ps(a.lo + d + 8);
        step0 = _mm256_loadu_ps(a.step + d);
        step1 = _mm256_loadu_ps(a.step + d + 8);
      }
      for (uint32_t i = 0; i < 16; ++i) {
        if (!a.per_channel) {
          lo0 = lo1 = _mm256_set1_ps(a.lo[t0 + i]);
          step0 = step1 = _mm256_set1_ps(a.step[t0 + i]);
        }
        uint16_t* dst = out + (t0 + i) * out_stride + d;
        _mm_storeu_si128(reinterpret_cast<__m128i*>(dst),
                         Dequantize8(rows[i], lo0, step0, scale, offset));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + 8),
                         Dequantize8(_mm_srli_si128(rows[i], 8), lo1, step1, scale, offset));
      }
    }
  }
  DequantizeRange(a, 0, tokens, channels, a.head_dim, out);
  DequantizeRange(a, tokens, a.tokens, 0, a.head_dim, out);
}

SPARKV_AVX2 void JoinBytesAvx2(const uint8_t* high, const uint8_t* low, uint32_t tokens,
                               uint32_t head_dim, uint16_t* out) {
  const uint32_t whole_tokens = tokens & ~15u;
  const uint32_t channels = head_dim & ~15u;
  for (uint32_t t0 = 0; t0 < whole_tokens; t0 += 16) {
    for (uint32_t d = 0; d < channels; d += 16) {
      __m128i h[16], l[16];
      LoadTransposed(high + size_t{d} * tokens + t0, tokens, h);
      LoadTransposed(low + size_t{d} * tokens + t0, tokens, l);
      for (uint32_t i = 0; i < 16; ++i) {
        uint16_t* dst = out + size_t{t0 + i} * head_dim + d;
        _mm_storeu_si128(reinterpret_cast<__m128i*>(dst), _mm_unpacklo_epi8(l[i], h[i]));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + 8), _mm_unpackhi_epi8(l[i], h[i]));
      }
    }
  }
  JoinRange(high, low, tokens, head_dim, 0, whole_tokens, channels, head_dim, out);
  JoinRange(high, low, tokens, head_dim, whole_tokens, tokens, 0, head_dim, out);
}
#endif

}  // namespace

void DequantizeHeadScalar(const DequantizeArgs& args, uint16_t* out) {
  DequantizeRange(args, 0, args.tokens, 0, args.head_dim, out);
}

void DequantizeHead(const DequantizeArgs& args, uint16_t* out) {
#if defined(__x86_64__)
  static const bool kHasAvx2 = kernels::HasAvx2();
  if (kHasAvx2) return DequantizeHeadAvx2(args, out);
#endif
  DequantizeHeadScalar(args, out);
}

void JoinBytes(const uint8_t* high, const uint8_t* low, uint32_t tokens, uint32_t head_dim,
               uint16_t* out) {
#if defined(__x86_64__)
  static const bool kHasAvx2 = kernels::HasAvx2();
  if (kHasAvx2) return JoinBytesAvx2(high, low, tokens, head_dim, out);
#endif
  JoinRange(high, low, tokens, head_dim, 0, tokens, 0, head_dim, out);
}

}  // namespace sparkv
