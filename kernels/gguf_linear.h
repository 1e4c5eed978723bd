// y = W x for a weight matrix stored as in the GGUF, without expanding it: decode and small
// batches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/gguf_dequant.h"

namespace sparkv::kernels {

inline constexpr size_t kMaxLinearBatch = 8;

// y[b * y_stride + r] = sum_k W[r, k] * x[b * x_stride + k]  for r in [row_begin, row_end), b in
// [0, batch).
//   w  row-major rows of RowBytes(type, k) bytes, row 0 first    x  f32, not rounded    y  f32,
//   must not overlap x
// batch 1..kMaxLinearBatch. Sums run in f32, in an order that depends on the twin. Callers split
// the rows over threads. InvalidArgument for k that is no multiple of the type's block or a batch
// out of range.
absl::Status GgufLinearRows(GgmlType type, const void* w, size_t k, size_t row_begin,
                            size_t row_end, const float* x, size_t x_stride, size_t batch, float* y,
                            size_t y_stride);

// The scalar twin, with sums in f64.
absl::Status GgufLinearRowsScalar(GgmlType type, const void* w, size_t k, size_t row_begin,
                                  size_t row_end, const float* x, size_t x_stride, size_t batch,
                                  float* y, size_t y_stride);

}  // namespace sparkv::kernels
