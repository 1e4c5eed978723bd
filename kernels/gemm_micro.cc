#include "kernels/gemm_micro.h"

#include <cstdint>

#include "kernels/cpu_features.h"
#include "kernels/gguf_blocks_avx2.h"

namespace sparkv::kernels::internal {
namespace {

// Four lanes: NEON and SSE registers alike, and the compiler contracts multiply-adds where the
// target has them.
using Lanes = float __attribute__((vector_size(16), aligned(4), may_alias));

template <size_t kCount>
void MultiplyScalar(const float* x, size_t ldx, const float* panel, size_t depth, float* y,
                    size_t ldy, bool add) {
  constexpr size_t kParts = kPanelColumns / 4;
  Lanes sum[kCount][kParts] = {};
  for (size_t p = 0; p < depth; ++p) {
    const Lanes* b = reinterpret_cast<const Lanes*>(panel + p * kPanelColumns);
#pragma GCC unroll 6
    for (size_t i = 0; i < kCount; ++i) {
#pragma GCC unroll 4
      for (size_t j = 0; j < kParts; ++j) sum[i][j] += x[i * ldx + p] * b[j];
    }
  }
  for (size_t i = 0; i < kCount; ++i) {
    Lanes* out = reinterpret_cast<Lanes*>(y + i * ldy);
    for (size_t j = 0; j < kParts; ++j) out[j] = add ? out[j] + sum[i][j] : sum[i][j];
  }
}

void TransposeScalar(const float* rows, size_t stride, size_t depth, float* panel) {
  for (size_t p = 0; p < depth; ++p) {
    for (size_t i = 0; i < 8; ++i) panel[p * kPanelColumns + i] = rows[i * stride + p];
  }
}

#if defined(__x86_64__)
template <size_t kCount>
SPARKV_AVX2 void MultiplyAvx2(const float* x, size_t ldx, const float* panel, size_t depth,
                              float* y, size_t ldy, bool add) {
  __m256 sum[kCount][2];
#pragma GCC unroll 6
  for (size_t i = 0; i < kCount; ++i) {
    sum[i][0] = sum[i][1] = _mm256_setzero_ps();
    _mm_prefetch(reinterpret_cast<const char*>(y + i * ldy), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(y + i * ldy + kPanelColumns - 1), _MM_HINT_T0);
  }
#pragma GCC unroll 2
  for (size_t p = 0; p < depth; ++p) {
    const __m256 b0 = _mm256_load_ps(panel + p * kPanelColumns),
                 b1 = _mm256_load_ps(panel + p * kPanelColumns + 8);
#pragma GCC unroll 6
    for (size_t i = 0; i < kCount; ++i) {
      const __m256 a = _mm256_broadcast_ss(x + i * ldx + p);
      sum[i][0] = _mm256_fmadd_ps(a, b0, sum[i][0]);
      sum[i][1] = _mm256_fmadd_ps(a, b1, sum[i][1]);
    }
  }
#pragma GCC unroll 6
  for (size_t i = 0; i < kCount; ++i, y += ldy) {
    if (add) {
      sum[i][0] = _mm256_add_ps(sum[i][0], _mm256_loadu_ps(y));
      sum[i][1] = _mm256_add_ps(sum[i][1], _mm256_loadu_ps(y + 8));
    }
    _mm256_storeu_ps(y, sum[i][0]);
    _mm256_storeu_ps(y + 8, sum[i][1]);
  }
}

SPARKV_AVX2 void TransposeAvx2(const float* rows, size_t stride, size_t depth, float* panel) {
  size_t p = 0;
  for (; p + 8 <= depth; p += 8) {
    __m256 r[8], t[8];
    for (size_t i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(rows + i * stride + p);
    for (size_t i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4) {
      r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
      r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    for (size_t i = 0; i < 4; ++i) {
      _mm256_storeu_ps(panel + (p + i) * kPanelColumns,
                       _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
      _mm256_storeu_ps(panel + (p + i + 4) * kPanelColumns,
                       _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
  }
  for (; p < depth; ++p) {
    for (size_t i = 0; i < 8; ++i) panel[p * kPanelColumns + i] = rows[i * stride + p];
  }
}
#endif

}  // namespace

const MicroKernels kScalarMicroKernels = {{MultiplyScalar<1>, MultiplyScalar<2>, MultiplyScalar<3>,
                                           MultiplyScalar<4>, MultiplyScalar<5>, MultiplyScalar<6>},
                                          TransposeScalar};

const MicroKernels& BestMicroKernels() {
#if defined(__x86_64__)
  static constexpr MicroKernels kAvx2 = {{MultiplyAvx2<1>, MultiplyAvx2<2>, MultiplyAvx2<3>,
                                          MultiplyAvx2<4>, MultiplyAvx2<5>, MultiplyAvx2<6>},
                                         TransposeAvx2};
  if (HasAvx2()) return kAvx2;
#endif
  return kScalarMicroKernels;
}

float* AlignToLine(float* p) {
  const size_t over = reinterpret_cast<uintptr_t>(p) % kCacheLine;
  return over == 0 ? p : p + (kCacheLine - over) / sizeof(float);
}

}  // namespace sparkv::kernels::internal
