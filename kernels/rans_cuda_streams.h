// What the CUDA twins of RansDecode and RansThirds take, in device memory, and how they are
// started. No Abseil here: nvcc reads it. Callers use kernels/rans_cuda.h.
#pragma once

#include <cstdint>

#include "kernels/cuda_stream.h"
#include "kernels/rans_constants.h"
#include "kernels/rans_thirds.h"

namespace sparkv::kernels {

// One stream to decode, as RansInput: all pointers are of device memory, and `states`, `words` and
// `out` may have any alignment. A table is told by the number of slots before each symbol: a symbol
// has the slots from its own number to the next one's, the last symbol those up to
// kRansFrequencySum. So the numbers ascend from 0, absent symbols repeat the one that follows.
struct RansCudaStream {
  const uint16_t* starts = nullptr;       // [tables][alphabet]
  const uint8_t* table_of_run = nullptr;  // [runs], each < tables
  const uint8_t* states = nullptr;        // [state_bytes]: uint32, little-endian
  const uint8_t* words = nullptr;         // [word_bytes]: uint16, little-endian
  uint8_t* out = nullptr;                 // [runs][length]
  uint32_t alphabet = 0;                  // symbols, 1..256
  uint32_t runs = 0;
  uint32_t length = 0;  // symbols of a run, >= 1
  uint32_t state_bytes = 0;
  uint32_t word_bytes = 0;
  uint32_t shift = 0;  // 0..8: out = out << shift | symbol
};

// One stream of THIRDS, as ThirdsInput; `states` and `words` may have any alignment.
struct ThirdsCudaStream {
  const ThirdsModel* models = nullptr;  // [runs]
  const uint8_t* states = nullptr;      // [state_bytes]: uint32, little-endian
  const uint8_t* words = nullptr;       // [word_bytes]: uint16, little-endian
  int16_t* values = nullptr;            // [runs][length], |value| <= 10922
  uint32_t runs = 0;
  uint32_t length = 0;  // values of a run, >= 1
  uint32_t state_bytes = 0;
  uint32_t word_bytes = 0;
};

inline constexpr uint32_t kMaxCudaStreams = 1u << 24;  // of one launch

// Starts the kernels: as kernels/rans_cuda.h says, but that nothing is checked and count is above
// 0. nullptr, or what CUDA says.
namespace cuda {
const char* LaunchRansDecode(const RansCudaStream* streams, uint32_t count, uint8_t* ok,
                             CudaStream stream);
const char* LaunchRansThirds(const ThirdsCudaStream* streams, uint32_t count, uint8_t* ok,
                             CudaStream stream);
}  // namespace cuda

// The same source on the CPU: tests/testing/cuda_emulator. In test programs only.
namespace emulated {
const char* LaunchRansDecode(const RansCudaStream* streams, uint32_t count, uint8_t* ok,
                             CudaStream stream);
const char* LaunchRansThirds(const ThirdsCudaStream* streams, uint32_t count, uint8_t* ok,
                             CudaStream stream);
}  // namespace emulated

}  // namespace sparkv::kernels
