// What KvDequantizeCuda takes and how its kernel is started. No Abseil here: nvcc reads it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda_stream.h"

namespace sparkv::kernels {

// K or V of one head, as codec `generic` (common/codec/FORMAT.md section 4.2) leaves it behind the
// entropy decoder. All pointers are of device memory.
struct KvDequantCudaJob {
  const uint8_t* codes = nullptr;  // [dim][tokens]
  // The low and high bytes of lo, then of step: four runs of f16 halves, [4][dim] for K (a pair for
  // each channel), [4][tokens] for V (for each token).
  const uint8_t* params = nullptr;
  uint16_t* const* pages = nullptr;  // as PagedKv's
  size_t head_offset = 0;            // elements of a page before this head
  size_t first_token = 0;            // of the cache, where token 0 goes
  bool per_channel = true;
};

struct KvDequantCudaArgs {
  const KvDequantCudaJob* jobs = nullptr;  // [count]
  uint32_t count = 0;
  uint32_t tokens = 0;  // of each job
  uint32_t dim = 0;
  float code_scale = 1, code_offset = 0;  // CodeScale of the planes that are there
  uint8_t* ok = nullptr;                  // [count]
};

namespace cuda {
const char* LaunchKvDequantize(const KvDequantCudaArgs& a, CudaStream stream);
}  // namespace cuda

// The same source on the CPU: tests/testing/cuda_emulator. In test programs only.
namespace emulated {
const char* LaunchKvDequantize(const KvDequantCudaArgs& a, CudaStream stream);
}  // namespace emulated

}  // namespace sparkv::kernels
