// The innermost loop of matrix products, for the kernels of this folder: a few rows of X, in place,
// times a panel of 16 columns.
#pragma once

#include <cstddef>

namespace sparkv::kernels::internal {

inline constexpr size_t kPanelColumns = 16;
inline constexpr size_t kMicroRows = 6;   // 12 sums of 8 columns fill the registers
inline constexpr size_t kCacheLine = 64;  // bytes

struct MicroKernels {
  // y [rows][16] = or += x [rows][ldx] times panel [depth][16], 1 <= rows <= kMicroRows; panel
  // aligned to 32 bytes. A sum runs in f32 over depth in ascending order.
  void multiply(const float* x, size_t ldx, size_t rows, const float* panel, size_t depth, float* y,
                size_t ldy, bool add) const {
    multiply_rows[rows - 1](x, ldx, panel, depth, y, ldy, add);
  }

  // One body for each number of rows.
  using MultiplyRows = void (*)(const float* x, size_t ldx, const float* panel, size_t depth,
                                float* y, size_t ldy, bool add);
  MultiplyRows multiply_rows[kMicroRows];
  // panel [depth][16], columns 0..7 = rows [8][stride], transposed.
  void (*transpose)(const float* rows, size_t stride, size_t depth, float* panel);
};

extern const MicroKernels kScalarMicroKernels;
// The fastest twin of this CPU.
const MicroKernels& BestMicroKernels();

// The first address at or after p that begins a cache line.
float* AlignToLine(float* p);

}  // namespace sparkv::kernels::internal
