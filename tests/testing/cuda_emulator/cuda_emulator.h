// CUDA's language for kernels, in host C++: the source of a kernel compiles against this header and
// runs on the CPU, each thread of a block as a fiber. kernels/cuda_device.h includes it where nvcc
// is not the compiler; its names are CUDA's, so only kernels and their tests should see it.
//
// What it finds, as a failed launch: an access outside of GuardedMemory and of shared memory; a
// __syncthreads that not all threads of the block reach; warp intrinsics whose lanes don't meet, or
// that read a lane which takes no part. What it shows: a missing barrier, by another result in
// another order of the threads; shared memory used before it is written, by its contents, which
// hang on the order as well.
// What it can't: races on global memory between blocks that run at once, and how fast anything is.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>

#include "kernels/cuda_stream.h"
#include "tests/testing/cuda_emulator/sanitizers.h"

struct dim3 {
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  unsigned x, y, z;
};
using uint3 = dim3;

// Of the thread that runs.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#ifndef __restrict__
#define __restrict__ __restrict
#endif

namespace sparkv::testing {

// The order in which threads of a block, and blocks, run between two points where they wait.
enum class ThreadOrder { kAscending, kDescending, kShuffled };

// One launch at a time in a process, from any thread.
class CudaEmulator {
 public:
#ifdef SPARKV_THREAD_SANITIZER
  static constexpr bool kFindsFaults = false;  // its handler of signals can't be left by a switch
#else
  static constexpr bool kFindsFaults = true;  // else a fault ends the program
#endif

  explicit CudaEmulator(ThreadOrder order, uint64_t seed = 0);

  // To be given to a kernel's launcher.
  kernels::CudaStream stream() { return reinterpret_cast<kernels::CudaStream>(this); }
  // The emulator of a stream; of nullptr one in ascending order.
  static CudaEmulator& Of(kernels::CudaStream stream);

  // Runs `thread` once for each thread of the grid and returns when all are done: nullptr, or what
  // went wrong, in words that live until the next launch. After a failure no more blocks run.
  const char* Launch(dim3 grid, dim3 block, size_t shared_bytes,
                     const std::function<void()>& thread);

  // Passes of all launches that ldmatrix took beyond one for each 8 rows, since different rows lie
  // in the same banks.
  uint64_t bank_conflicts() const { return bank_conflicts_; }

 private:
  ThreadOrder order_;
  uint64_t seed_;
  uint64_t bank_conflicts_ = 0;
  std::string failure_;
};

// Called by emulated threads ---------------------------------------------------------------------

// `count` values that all threads of the block share; a key is an address that tells one array of
// the kernel from another.
void* SharedBytes(const void* key, size_t bytes, size_t alignment);
template <typename T>
T* SharedArray(const void* key, size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  return static_cast<T*>(SharedBytes(key, count * sizeof(T), alignof(T)));
}
unsigned char* DynamicSharedMemory();

// Fails the launch on behalf of the running thread.
[[noreturn]] void FailThread(std::string what);

// The running thread waits until all lanes of its warp that are in `mask` and have not returned
// came here by the same name and mask; then `combine` runs once. operands: [32], what each lane
// gave; lanes: those that take part.
using WarpCombine = void (*)(void* const* operands, unsigned lanes);
void MeetInWarp(const char* name, unsigned mask, void* operand, WarpCombine combine);
unsigned Lane();
// Returns whether `predicate` held for one of the threads.
bool MeetInBlock(bool predicate = false);

// Bits of the lanes whose `predicate` holds; *lanes: those that took part.
unsigned Vote(const char* name, unsigned mask, bool predicate, unsigned* lanes);

// The bytes that lane `from` gave.
uint64_t Exchange(const char* name, unsigned mask, uint64_t value, unsigned from);

template <typename T>
T ExchangeValue(const char* name, unsigned mask, T value, unsigned from) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Exchange(name, mask, bits, from);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace sparkv::testing

inline void __syncthreads() { ::sparkv::testing::MeetInBlock(); }
inline int __syncthreads_or(int predicate) {
  return ::sparkv::testing::MeetInBlock(predicate != 0) ? 1 : 0;
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFF) {
  ::sparkv::testing::MeetInWarp("__syncwarp", mask, nullptr, nullptr);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  unsigned lanes;
  return ::sparkv::testing::Vote("__ballot_sync", mask, predicate != 0, &lanes);
}
inline int __any_sync(unsigned mask, int predicate) {
  unsigned lanes;
  return ::sparkv::testing::Vote("__any_sync", mask, predicate != 0, &lanes) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  unsigned lanes;
  return ::sparkv::testing::Vote("__all_sync", mask, predicate != 0, &lanes) == lanes ? 1 : 0;
}

// width: a power of two up to 32; lanes exchange within groups of it.
template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  const unsigned w = static_cast<unsigned>(width), group = ::sparkv::testing::Lane() & ~(w - 1);
  return ::sparkv::testing::ExchangeValue("__shfl_sync", mask, value,
                                          group | (static_cast<unsigned>(from) & (w - 1)));
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = ::sparkv::testing::Lane(),
                 in_group = lane & (static_cast<unsigned>(width) - 1);
  return ::sparkv::testing::ExchangeValue("__shfl_up_sync", mask, value,
                                          delta > in_group ? lane : lane - delta);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = ::sparkv::testing::Lane(), w = static_cast<unsigned>(width);
  const unsigned in_group = lane & (w - 1);
  return ::sparkv::testing::ExchangeValue("__shfl_down_sync", mask, value,
                                          delta >= w - in_group ? lane : lane + delta);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const unsigned lane = ::sparkv::testing::Lane(), w = static_cast<unsigned>(width);
  const unsigned from = lane ^ static_cast<unsigned>(lane_mask);
  return ::sparkv::testing::ExchangeValue("__shfl_xor_sync", mask, value,
                                          from > (lane | (w - 1)) ? lane : from);
}

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
template <typename T>
T __ldg(const T* address) {
  return *address;
}

// One operation each, never fused with another.
inline float __fmul_rn(float x, float y) {
  volatile const float product = x * y;
  return product;
}
inline float __fadd_rn(float x, float y) {
  volatile const float sum = x + y;
  return sum;
}

// Threads take turns only where they wait, so plain steps are atomic.
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  const T old = *address;
  *address = value;
  return old;
}
template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return atomicExch(address, static_cast<T>(*address + value));
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return atomicExch(address, value < *address ? value : *address);
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return atomicExch(address, value > *address ? value : *address);
}
template <typename T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  return atomicExch(address, *address & value);
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return atomicExch(address, *address | value);
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return *address == expected ? atomicExch(address, value) : *address;
}
