// What the CUDA twins of the row operations take and how they are started. No Abseil here: nvcc
// reads it. Callers use kernels/row_ops_cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda_stream.h"

namespace sparkv::kernels {

// All pointers are of device memory; rows are dense, one after another. An output that is null is
// not wanted; f16 ones hold rounded bits, for a GEMM.

struct RmsNormCudaArgs {
  const float* x = nullptr;  // [rows][n]
  // The residual stream, or null: becomes residual + x, and that is what is normalized.
  float* residual = nullptr;      // [rows][n]
  const float* weight = nullptr;  // [n]
  float epsilon = 0;
  float* y = nullptr;          // [rows][n], may be x
  uint16_t* y_half = nullptr;  // [rows][n]
  size_t rows = 0, n = 0;
};

struct SiluMulCudaArgs {
  const float* gate = nullptr;  // [n]
  const float* up = nullptr;    // [n]
  float* out = nullptr;         // [n], may be gate or up
  uint16_t* out_half = nullptr;
  size_t n = 0;
};

struct RopeCudaArgs {
  float* x = nullptr;  // row r of head h at x + r * row_stride + h * head_stride; in place
  size_t row_stride = 0, head_stride = 0;  // floats
  size_t rows = 0, heads = 0;
  size_t pairs = 0;            // of a head that are rotated
  const float* cos = nullptr;  // [begin + rows][pairs], as RopeTable's
  const float* sin = nullptr;
  size_t begin = 0;         // the position of row 0
  bool interleaved = true;  // pairs (2i, 2i + 1), else (i, i + pairs)
};

// Rows of K and V as f16 into pages as PagedKv's.
struct StoreKvCudaArgs {
  const float* k = nullptr;  // row r of KV head h at k + r * row_stride + h * head_stride
  const float* v = nullptr;
  size_t row_stride = 0, head_stride = 0;
  size_t rows = 0, kv_heads = 0, dim = 0;
  uint16_t* const* k_pages = nullptr;  // [(begin + rows) / kKeyBlock, rounded up]
  uint16_t* const* v_pages = nullptr;
  size_t page_head_stride = 0;
  size_t begin = 0;  // the token of row 0
};

namespace cuda {
const char* LaunchRmsNorm(const RmsNormCudaArgs& a, CudaStream stream);
const char* LaunchSiluMul(const SiluMulCudaArgs& a, CudaStream stream);
const char* LaunchRope(const RopeCudaArgs& a, CudaStream stream);
const char* LaunchStoreKv(const StoreKvCudaArgs& a, CudaStream stream);
}  // namespace cuda

// The same source on the CPU: tests/testing/cuda_emulator. In test programs only.
namespace emulated {
const char* LaunchRmsNorm(const RmsNormCudaArgs& a, CudaStream stream);
const char* LaunchSiluMul(const SiluMulCudaArgs& a, CudaStream stream);
const char* LaunchRope(const RopeCudaArgs& a, CudaStream stream);
const char* LaunchStoreKv(const StoreKvCudaArgs& a, CudaStream stream);
}  // namespace emulated

}  // namespace sparkv::kernels
