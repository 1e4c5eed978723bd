// Y = X W^T for many rows of X and a weight matrix stored as in the GGUF: prefill.
//
// The scheme is that of BLIS (Van Zee, van de Geijn: "BLIS: A Framework for Rapidly Instantiating
// BLAS Functionality", ACM TOMS 2015) without a copy of X: a tile of W is expanded straight into
// panels of a few columns that stay in the L2 cache, and a micro-kernel multiplies a few rows of X
// with a panel in registers. W is never held in f32 as a whole.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/gguf_dequant.h"

namespace sparkv::kernels {

inline constexpr size_t kGemmColumns = 16;       // of a panel of W
inline constexpr size_t kGemmTileColumns = 192;  // of a tile: 12 panels

// The floats between rows of X that suit k values: k, or somewhat more where rows of k would
// compete for the same sets of the L1 cache, which costs a third of the speed. Any other distance
// works too.
size_t GemmStride(size_t k);

// Floats of the scratch that one GgufGemm needs.
size_t GemmScratchFloats(GgmlType type, size_t k);

struct GemmArgs {
  GgmlType type = GgmlType::kF32;
  const void* w = nullptr;  // [columns] rows of RowBytes(type, k) bytes, row 0 first
  size_t w_stride = 0;      // bytes between rows of W; 0: RowBytes(type, k)
  size_t columns = 0;
  size_t k = 0;
  const float* x = nullptr;  // [m][ldx], k values of a row count
  size_t ldx = 0;
  size_t m = 0;
  float* y = nullptr;  // [m][ldy], must not overlap x
  size_t ldy = 0;
  bool accumulate = false;  // y += instead of y =
};

// y[r][c] for all r and c in [column_begin, column_end); column_begin a multiple of kGemmColumns.
// The sum of one y runs in f32, in an order that depends on k and the type alone: the same bits for
// any m and any split of the columns. Calls on other columns may run at the same time, each with
// its own scratch. InvalidArgument for k that is no multiple of the type's block, Unimplemented for
// an unknown type.
absl::Status GgufGemm(const GemmArgs& args, size_t column_begin, size_t column_end, float* scratch);

// The scalar twin: the same order without fused multiply-adds, unless the compiler makes them.
absl::Status GgufGemmScalar(const GemmArgs& args, size_t column_begin, size_t column_end,
                            float* scratch);

}  // namespace sparkv::kernels
