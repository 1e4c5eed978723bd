// Where a CUDA kernel runs in a test: in the emulator, in one of its orders, or on this machine's
// GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda_stream.h"

namespace sparkv::testing {

class CudaTarget {
 public:
  virtual ~CudaTarget() = default;

  virtual std::string name() const = 0;
  virtual bool emulated() const = 0;
  virtual kernels::CudaStream stream() = 0;

  // A copy of `bytes` in the device's memory, which lives until Clear. odd: at an odd address. The
  // address is for kernels only; it may not be read here.
  virtual uint8_t* Put(const char* what, std::span<const uint8_t> bytes, bool odd) = 0;

  // As it is in the host's memory, aligned for T.
  template <typename T>
  T* PutArray(const char* what, std::span<const T> values) {
    return reinterpret_cast<T*>(
        Put(what, {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()}, false));
  }

  // Calls `launch` and waits for the work. An error of it, or one if something was touched that
  // Put did not give.
  virtual absl::Status Run(const std::function<absl::Status()>& launch) = 0;

  // After a Run: the bytes of what Put gave, until Clear.
  virtual const uint8_t* Result(const void* device) const = 0;

  virtual void Clear() = 0;

  // Of all runs, where that can be seen: CudaEmulator::bank_conflicts.
  virtual uint64_t bank_conflicts() const { return 0; }
};

// One for each order; in ascending order only where the CPU is not x86-64, none with
// SPARKV_SIMD=scalar.
std::vector<std::unique_ptr<CudaTarget>> EmulatedTargets();

// nullptr, and why, when there is no GPU or the build has no CUDA kernels.
std::unique_ptr<CudaTarget> GpuTarget(std::string* why_not);

}  // namespace sparkv::testing
