#include "kernels/gguf_linear.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu_features.h"
#include "kernels/gguf_blocks_avx2.h"

namespace sparkv::kernels {
namespace {

struct Problem {
  const uint8_t* w;
  size_t k;
  size_t row_begin;
  size_t row_end;
  const float* x;
  size_t x_stride;
  float* y;
  size_t y_stride;
};

absl::Status Check(GgmlType type, size_t k, size_t batch) {
  const GgmlTypeInfo* info = FindGgmlType(static_cast<uint32_t>(type));
  if (info == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("tensor type ", static_cast<uint32_t>(type), " is not supported"));
  }
  if (k % info->block_values != 0) {
    return absl::InvalidArgumentError(absl::StrCat("rows of ", k, " values of type ", info->name,
                                                   ", allowed: multiples of ", info->block_values));
  }
  if (batch == 0 || batch > kMaxLinearBatch) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch, ", allowed: 1..", kMaxLinearBatch));
  }
  return absl::OkStatus();
}

#if defined(__x86_64__)
using internal::Block32;
using internal::LoadHalf;

SPARKV_AVX2_INLINE float Sum(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  s = _mm_add_ss(s, _mm_movehdup_ps(s));
  return _mm_cvtss_f32(s);
}

// Q4_1 and Q4_0 are most of what decode reads, so they get a kernel without byte shuffles. A
// block's 16 bytes are loaded into both halves of a register as four 32-bit lanes: masks pick
// nibble by nibble, at its place in the lane, the low nibbles in the lower half and the high ones
// in the upper. What the place multiplies (powers of two from 1 to 2^24) is taken out of the vector
// beforehand, in a copy whose order is that of the lanes.
struct NibblesQ4_1 {
  static constexpr int kBytes = 20, kData = 4;
  // (d, m, *, *)
  SPARKV_AVX2_INLINE static __m128 ScaleAndMinimum(const uint8_t* s) {
    int bits;
    std::memcpy(&bits, s, sizeof(bits));
    return _mm_cvtph_ps(_mm_cvtsi32_si128(bits));
  }
};
struct NibblesQ4_0 {
  static constexpr int kBytes = 18, kData = 2;
  SPARKV_AVX2_INLINE static __m128 ScaleAndMinimum(const uint8_t* s) {
    const float d = LoadHalf(s);
    return _mm_setr_ps(d, -8.0f * d, 0.0f, 0.0f);
  }
};

// A subnormal product of x and 2^-24 loses digits: x below 1e-31, no activation.
// Of one vector: [k] values in lane order with the powers of two taken out, then [k/32] pairs (0,
// sum of the block).
SPARKV_AVX2 void ArrangeForNibbles(const float* x, size_t k, float* lanes, float* sums) {
  const __m128 low[4] = {_mm_set1_ps(1.0f), _mm_set1_ps(0x1p-8f), _mm_set1_ps(0x1p-16f),
                         _mm_set1_ps(0x1p-20f)};
  const __m128 sixteenth = _mm_set1_ps(0x1p-4f);
  for (size_t block = 0; block < k / 32; ++block, x += 32, lanes += 32, sums += 2) {
    __m256 sum = _mm256_add_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8));
    sum = _mm256_add_ps(sum, _mm256_add_ps(_mm256_loadu_ps(x + 16), _mm256_loadu_ps(x + 24)));
    sums[0] = 0.0f;
    sums[1] = Sum(sum);
    for (int half = 0; half < 2; ++half) {
      __m128 v[4];
      for (int i = 0; i < 4; ++i) v[i] = _mm_loadu_ps(x + 16 * half + 4 * i);
      _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]);
      for (int i = 0; i < 4; ++i) {
        const __m128 scaled = _mm_mul_ps(v[i], low[i]);
        _mm_storeu_ps(lanes + 8 * i + 4 * half, half == 0 ? scaled : _mm_mul_ps(scaled, sixteenth));
      }
    }
  }
}

template <typename Nibbles, int kBatch>
SPARKV_AVX2 void NibbleRows(const Problem& p, const float* lanes, const float* sums) {
  const size_t blocks = p.k / 32;
  const __m256i first = _mm256_setr_epi32(0xF, 0xF, 0xF, 0xF, 0xF0, 0xF0, 0xF0, 0xF0);
  const __m256i second = _mm256_slli_epi32(first, 8);
  const __m256i third = _mm256_slli_epi32(first, 16);
  const __m256i fourth =
      _mm256_slli_epi32(first, 20);  // after a shift by 4, which keeps the sign bit clear
  for (size_t r = p.row_begin; r < p.row_end; ++r) {
    const uint8_t* s = p.w + r * blocks * Nibbles::kBytes;
    __m256 acc[kBatch];
    __m128 minimum[kBatch];
    for (int b = 0; b < kBatch; ++b) {
      acc[b] = _mm256_setzero_ps();
      minimum[b] = _mm_setzero_ps();
    }
    for (size_t block = 0; block < blocks; ++block, s += Nibbles::kBytes) {
      const __m256i raw = _mm256_broadcastsi128_si256(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(s + Nibbles::kData)));
      const __m256 q0 = _mm256_cvtepi32_ps(_mm256_and_si256(raw, first));
      const __m256 q1 = _mm256_cvtepi32_ps(_mm256_and_si256(raw, second));
      const __m256 q2 = _mm256_cvtepi32_ps(_mm256_and_si256(raw, third));
      const __m256 q3 = _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(raw, 4), fourth));
      const __m128 dm = Nibbles::ScaleAndMinimum(s);
      const __m256 d = _mm256_broadcastss_ps(dm);
      for (int b = 0; b < kBatch; ++b) {
        const float* x = lanes + b * p.k + 32 * block;
        const __m256 even =
            _mm256_fmadd_ps(q2, _mm256_loadu_ps(x + 16), _mm256_mul_ps(q0, _mm256_loadu_ps(x)));
        const __m256 odd =
            _mm256_fmadd_ps(q3, _mm256_loadu_ps(x + 24), _mm256_mul_ps(q1, _mm256_loadu_ps(x + 8)));
        acc[b] = _mm256_fmadd_ps(d, _mm256_add_ps(even, odd), acc[b]);
        const __m128 sum = _mm_castpd_ps(
            _mm_load_sd(reinterpret_cast<const double*>(sums + 2 * (b * blocks + block))));
        minimum[b] = _mm_fmadd_ps(dm, sum, minimum[b]);
      }
    }
    for (int b = 0; b < kBatch; ++b) {
      p.y[b * p.y_stride + r] = Sum(acc[b]) + _mm_cvtss_f32(_mm_movehdup_ps(minimum[b]));
    }
  }
}

template <typename Nibbles>
void NibbleRowsOfBatch(const Problem& p, size_t batch) {
  std::vector<float> lanes(p.k * batch), sums(p.k / 16 * batch);
  for (size_t b = 0; b < batch; ++b) {
    ArrangeForNibbles(p.x + b * p.x_stride, p.k, lanes.data() + b * p.k,
                      sums.data() + b * (p.k / 16));
  }
  switch (batch) {
    case 1:
      return NibbleRows<Nibbles, 1>(p, lanes.data(), sums.data());
    case 2:
      return NibbleRows<Nibbles, 2>(p, lanes.data(), sums.data());
    case 3:
      return NibbleRows<Nibbles, 3>(p, lanes.data(), sums.data());
    case 4:
      return NibbleRows<Nibbles, 4>(p, lanes.data(), sums.data());
    case 5:
      return NibbleRows<Nibbles, 5>(p, lanes.data(), sums.data());
    case 6:
      return NibbleRows<Nibbles, 6>(p, lanes.data(), sums.data());
    case 7:
      return NibbleRows<Nibbles, 7>(p, lanes.data(), sums.data());
    default:
      return NibbleRows<Nibbles, 8>(p, lanes.data(), sums.data());
  }
}

// Sums of x over each 32-value block: sums[block * batch + b]. The minimum of a block multiplies
// this once.
SPARKV_AVX2 void BlockSums(const Problem& p, size_t batch, float* sums) {
  for (size_t block = 0; block < p.k / 32; ++block) {
    for (size_t b = 0; b < batch; ++b) {
      const float* x = p.x + b * p.x_stride + 32 * block;
      __m256 sum = _mm256_add_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8));
      sum = _mm256_add_ps(sum, _mm256_add_ps(_mm256_loadu_ps(x + 16), _mm256_loadu_ps(x + 24)));
      sums[block * batch + b] = Sum(sum);
    }
  }
}

// One weight block is decoded once and used for the whole batch.
template <typename Decode, int kBatch>
SPARKV_AVX2 void Rows(const Problem& p, const float* sums) {
  const size_t blocks = p.k / 32;
  for (size_t r = p.row_begin; r < p.row_end; ++r) {
    const uint8_t* s = p.w + r * blocks * Decode::kBytes;
    __m256 acc[kBatch];
    float minimum[kBatch];
    for (int b = 0; b < kBatch; ++b) {
      acc[b] = _mm256_setzero_ps();
      minimum[b] = 0.0f;
    }
    for (size_t block = 0; block < blocks; ++block, s += Decode::kBytes) {
      const Block32 values = Decode::Values(s);
      const __m256 d = _mm256_set1_ps(Decode::Scale(s));
      for (int b = 0; b < kBatch; ++b) {
        const float* x = p.x + b * p.x_stride + 32 * block;
        const __m256 even = _mm256_fmadd_ps(values.q[2], _mm256_loadu_ps(x + 16),
                                            _mm256_mul_ps(values.q[0], _mm256_loadu_ps(x)));
        const __m256 odd = _mm256_fmadd_ps(values.q[3], _mm256_loadu_ps(x + 24),
                                           _mm256_mul_ps(values.q[1], _mm256_loadu_ps(x + 8)));
        acc[b] = _mm256_fmadd_ps(d, _mm256_add_ps(even, odd), acc[b]);
      }
      if constexpr (Decode::kHasMinimum) {
        const float m = Decode::Minimum(s);
        for (int b = 0; b < kBatch; ++b) minimum[b] += m * sums[block * kBatch + b];
      }
    }
    for (int b = 0; b < kBatch; ++b) p.y[b * p.y_stride + r] = Sum(acc[b]) + minimum[b];
  }
}

template <typename Decode>
void RowsOfBatch(const Problem& p, size_t batch) {
  std::vector<float> sums;
  if constexpr (Decode::kHasMinimum) {
    sums.resize(p.k / 32 * batch);
    BlockSums(p, batch, sums.data());
  }
  switch (batch) {
    case 1:
      return Rows<Decode, 1>(p, sums.data());
    case 2:
      return Rows<Decode, 2>(p, sums.data());
    case 3:
      return Rows<Decode, 3>(p, sums.data());
    case 4:
      return Rows<Decode, 4>(p, sums.data());
    case 5:
      return Rows<Decode, 5>(p, sums.data());
    case 6:
      return Rows<Decode, 6>(p, sums.data());
    case 7:
      return Rows<Decode, 7>(p, sums.data());
    default:
      return Rows<Decode, 8>(p, sums.data());
  }
}

// A dequantized row against every vector of the batch, for types without a block decoder and ragged
// rows.
SPARKV_AVX2 void ExpandedRow(const Problem& p, size_t batch, size_t r, const float* row) {
  for (size_t b = 0; b < batch; ++b) {
    const float* x = p.x + b * p.x_stride;
    __m256 acc0 = _mm256_setzero_ps(), acc1 = acc0;
    size_t i = 0;
    for (; i + 16 <= p.k; i += 16) {
      acc0 = _mm256_fmadd_ps(_mm256_loadu_ps(row + i), _mm256_loadu_ps(x + i), acc0);
      acc1 = _mm256_fmadd_ps(_mm256_loadu_ps(row + i + 8), _mm256_loadu_ps(x + i + 8), acc1);
    }
    float sum = Sum(_mm256_add_ps(acc0, acc1));
    for (; i < p.k; ++i) sum += row[i] * x[i];
    p.y[b * p.y_stride + r] = sum;
  }
}

void Avx2(GgmlType type, const Problem& p, size_t batch) {
  if (p.k % 32 == 0) {
    switch (type) {
      case GgmlType::kF32:
        return RowsOfBatch<internal::DecodeF32>(p, batch);
      case GgmlType::kF16:
        return RowsOfBatch<internal::DecodeF16>(p, batch);
      case GgmlType::kBF16:
        return RowsOfBatch<internal::DecodeBF16>(p, batch);
      case GgmlType::kQ4_0:
        return NibbleRowsOfBatch<NibblesQ4_0>(p, batch);
      case GgmlType::kQ4_1:
        return NibbleRowsOfBatch<NibblesQ4_1>(p, batch);
      case GgmlType::kQ5_0:
        return RowsOfBatch<internal::DecodeQ5_0>(p, batch);
      case GgmlType::kQ5_1:
        return RowsOfBatch<internal::DecodeQ5_1>(p, batch);
      case GgmlType::kQ8_0:
        return RowsOfBatch<internal::DecodeQ8_0>(p, batch);
      default:
        break;
    }
  }
  const uint64_t row_bytes = RowBytes(*FindGgmlType(static_cast<uint32_t>(type)), p.k);
  std::vector<float> row(p.k);
  for (size_t r = p.row_begin; r < p.row_end; ++r) {
    DequantizeRow(type, p.w + r * row_bytes, row.data(), p.k)
        .IgnoreError();  // checked by the caller
    ExpandedRow(p, batch, r, row.data());
  }
}
#endif

}  // namespace

absl::Status GgufLinearRowsScalar(GgmlType type, const void* w, size_t k, size_t row_begin,
                                  size_t row_end, const float* x, size_t x_stride, size_t batch,
                                  float* y, size_t y_stride) {
  const absl::Status status = Check(type, k, batch);
  if (!status.ok()) return status;
  const uint64_t row_bytes = RowBytes(*FindGgmlType(static_cast<uint32_t>(type)), k);
  std::vector<float> row(k);
  for (size_t r = row_begin; r < row_end; ++r) {
    const absl::Status dequantized =
        DequantizeRowScalar(type, static_cast<const uint8_t*>(w) + r * row_bytes, row.data(), k);
    if (!dequantized.ok()) return dequantized;
    for (size_t b = 0; b < batch; ++b) {
      double sum = 0;
      for (size_t i = 0; i < k; ++i) sum += static_cast<double>(row[i]) * x[b * x_stride + i];
      y[b * y_stride + r] = static_cast<float>(sum);
    }
  }
  return absl::OkStatus();
}

absl::Status GgufLinearRows(GgmlType type, const void* w, size_t k, size_t row_begin,
                            size_t row_end, const float* x, size_t x_stride, size_t batch, float* y,
                            size_t y_stride) {
#if defined(__x86_64__)
  if (HasAvx2()) {
    const absl::Status status = Check(type, k, batch);
    if (!status.ok()) return status;
    Avx2(type, {static_cast<const uint8_t*>(w), k, row_begin, row_end, x, x_stride, y, y_stride},
         batch);
    return absl::OkStatus();
  }
#endif
  return GgufLinearRowsScalar(type, w, k, row_begin, row_end, x, x_stride, batch, y, y_stride);
}

}  // namespace sparkv::kernels
