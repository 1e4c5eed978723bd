// What the CUDA kernels of quantized weights take and how they are started. No Abseil here: nvcc
// reads it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda_stream.h"

namespace sparkv::kernels {

// The types that have kernels; the numbers are those of GgmlType.
enum class CudaWeightType : uint32_t { kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8, kQ4_K = 12, kQ6_K = 14 };

inline constexpr size_t kCudaLinearBatch = 8;

struct GgufLinearCudaArgs {
  CudaWeightType type = CudaWeightType::kQ8_0;
  const uint8_t* w = nullptr;  // [rows] of RowBytes(type, k), at a multiple of 2
  size_t rows = 0, k = 0;      // k: a multiple of the type's block
  const float* x = nullptr;    // [batch], x_stride floats apart
  size_t x_stride = 0, batch = 1;
  float* y = nullptr;  // y[b * y_stride + row]
  size_t y_stride = 0;
};

namespace cuda {
// values: a multiple of the type's block.
const char* LaunchGgufToHalf(CudaWeightType type, const uint8_t* w, size_t values, uint16_t* out,
                             CudaStream stream);
const char* LaunchGgufLinear(const GgufLinearCudaArgs& a, CudaStream stream);
}  // namespace cuda

// The same source on the CPU: tests/testing/cuda_emulator. In test programs only.
namespace emulated {
const char* LaunchGgufToHalf(CudaWeightType type, const uint8_t* w, size_t values, uint16_t* out,
                             CudaStream stream);
const char* LaunchGgufLinear(const GgufLinearCudaArgs& a, CudaStream stream);
}  // namespace emulated

}  // namespace sparkv::kernels
