// AVX2 twin of DequantizeRow: the 32-value types and Q4_K, Q6_K.
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

SPARKV_AVX2 void Q4_K(const uint8_t* s, float* y, size_t n) {
  const __m256i mask = _mm256_set1_epi8(0xF);
  for (size_t b = 0; b < n / 256; ++b, s += 144) {
    const float d = LoadHalf(s);
    const float dmin = LoadHalf(s + 2);
    for (int pair = 0; pair < 4; ++pair) {
      const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(s + 16 + 32 * pair));
      for (int part = 0; part < 2; ++part, y += 32) {
        uint8_t scale, minimum;
        ScaleMinK4(2 * pair + part, s + 4, &scale, &minimum);
        const __m256 dl = _mm256_set1_ps(d * static_cast<float>(scale));
        const __m256 ml = _mm256_set1_ps(-(dmin * static_cast<float>(minimum)));
        const __m256i q = _mm256_and_si256(part == 0 ? raw : _mm256_srli_epi16(raw, 4), mask);
        const __m128i low = _mm256_castsi256_si128(q);
        const __m128i high = _mm256_extracti128_si256(q, 1);
        _mm256_storeu_ps(y, _mm256_fmadd_ps(dl, Widen8(low), ml));
        _mm256_storeu_ps(y + 8, _mm256_fmadd_ps(dl, Widen8(_mm_srli_si128(low, 8)), ml));
        _mm256_storeu_ps(y + 16, _mm256_fmadd_ps(dl, Widen8(high), ml));
        _mm256_storeu_ps(y + 24, _mm256_fmadd_ps(dl, Widen8(_mm_srli_si128(high, 8)), ml));
      }
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
    for (int half = 0; half < 2; ++half, scale += 8) {
      const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(s + 128 + 32 * half));
      for (int quarter = 0; quarter < 4; ++quarter, y += 32) {
        const __m256i raw = _mm256_loadu_si256(
            reinterpret_cast<const __m256i*>(s + 64 * half + 32 * (quarter & 1)));
        const __m256i low = _mm256_and_si256(quarter < 2 ? raw : _mm256_srli_epi16(raw, 4), nibble);
        const __m256i up = _mm256_and_si256(
            _mm256_srl_epi16(high, _mm_cvtsi32_si128(2 * quarter)), two);
        const __m256i q = _mm256_sub_epi8(_mm256_or_si256(low, _mm256_slli_epi16(up, 4)), offset);
        const __m256 d0 = _mm256_set1_ps(d * static_cast<float>(scale[2 * quarter]));
        const __m256 d1 = _mm256_set1_ps(d * static_cast<float>(scale[2 * quarter + 1]));
        const __m128i first = _mm256_castsi256_si128(q);
        const __m128i second = _mm256_extracti128_si256(q, 1);
        _mm256_storeu_ps(y, _mm256_mul_ps(d0, Widen8(first)));
        _mm256_storeu_ps(y + 8, _mm256_mul_ps(d0, Widen8(_mm_srli_si128(first, 8))));
        _mm256_storeu_ps(y + 16, _mm256_mul_ps(d1, Widen8(second)));
        _mm256_storeu_ps(y + 24, _mm256_mul_ps(d1, Widen8(_mm_srli_si128(second, 8))));
      }
    }
  }
}

}  // namespace

bool DequantizeAvx2(GgmlType type, const uint8_t* src, float* dst, size_t n) {
  switch (type) {
    case GgmlType::kF16: BlocksThenRest<DecodeF16>(type, src, dst, n); return true;
    case GgmlType::kBF16: BlocksThenRest<DecodeBF16>(type, src, dst, n); return true;
    case GgmlType::kQ4_0: Blocks<DecodeQ4_0>(src, dst, n); return true;
    case GgmlType::kQ4_1: Blocks<DecodeQ4_1>(src, dst, n); return true;
    case GgmlType::kQ8_0: Blocks<DecodeQ8_0>(src, dst, n); return true;
    case GgmlType::kQ4_K: Q4_K(src, dst, n); return true;
    case GgmlType::kQ6_K: Q6_K(src, dst, n); return true;
    default: return false;
  }
}
#else
bool DequantizeAvx2(GgmlType, const uint8_t*, float*, size_t) { return false; }
#endif

}  // namespace sparkv::kernels::internal
