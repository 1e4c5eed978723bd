// What the source of a CUDA kernel stands on. nvcc compiles it for a device; any C++ compiler
// compiles the same source against the emulator of tests/testing/cuda_emulator, which a test puts
// on the include path. Whatever differs between the two, PTX too, belongs here and nowhere else;
// the rest of a kernel uses CUDA's own names (__syncwarp, __ballot_sync, threadIdx, ...).
//
// SPARKV_CUDA_NAMESPACE: kernels live in sparkv::kernels::SPARKV_CUDA_NAMESPACE, so that a program
//   can hold both.
// SPARKV_SHARED(T, name, count): static shared memory, T name[count] of the block.
// SPARKV_UNROLL: before a loop of constant length, whose arrays shall be in registers.
// SPARKV_NO_UNROLL: before a loop that would take many registers side by side.
// SPARKV_DYNAMIC_SHARED(name): unsigned char name[], the launch's shared_bytes, 16-byte aligned.
#pragma once

#include <cstddef>

#include "kernels/cuda_stream.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define SPARKV_CUDA_NAMESPACE cuda
#define SPARKV_UNROLL _Pragma("unroll")
#define SPARKV_NO_UNROLL _Pragma("unroll 1")
#define SPARKV_SHARED(T, name, count) __shared__ T name[count]
#define SPARKV_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#else
#include "cuda_emulator.h"
#define SPARKV_CUDA_NAMESPACE emulated
#define SPARKV_UNROLL
#define SPARKV_NO_UNROLL
#define SPARKV_SHARED(T, name, count) \
  static const char name##_key = 0;   \
  T* const name = ::sparkv::testing::SharedArray<T>(&name##_key, count)
#define SPARKV_DYNAMIC_SHARED(name) \
  unsigned char* const name = ::sparkv::testing::DynamicSharedMemory()
#endif

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {

inline constexpr unsigned kWarpSize = 32;
inline constexpr unsigned kWholeWarp = 0xFFFFFFFF;

// Dynamic shared memory that a kernel has without asking CUDA for more.
inline constexpr size_t kPlainSharedBytes = 48 << 10;

// Queues a kernel. nullptr, or why it could not be queued; the text lives until the next launch.
template <typename... Parameters, typename... Arguments>
const char* Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                   CudaStream stream, Arguments... arguments) {
#ifdef __CUDACC__
  if (shared_bytes > kPlainSharedBytes) {
    const cudaError_t refused = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (refused != cudaSuccess) return cudaGetErrorString(refused);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, arguments...);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
#else
  return ::sparkv::testing::CudaEmulator::Of(stream).Launch(grid, block, shared_bytes,
                                                            [&] { kernel(arguments...); });
#endif
}

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
