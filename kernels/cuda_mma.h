// The instructions of a warp's tensor cores and of asynchronous copies, with a body for a device
// (PTX, sm_80 and later) and one for the emulator. Layouts are those of the PTX ISA, "Matrix
// fragments for mma.m16n8k16 with floating point type" and "ldmatrix"; group = lane / 4,
// pair = lane % 4, and the low half of a register is the element with the lower number:
//   a[0]  (row group,     k 2 pair, + 1)      a[2]  (row group,     k 2 pair + 8, + 9)
//   a[1]  (row group + 8, k 2 pair, + 1)      a[3]  (row group + 8, k 2 pair + 8, + 9)
//   b[0]  (k 2 pair, + 1, column group)       b[1]  (k 2 pair + 8, + 9, column group)
//   c[0], c[1]  (row group, column 2 pair, + 1)    c[2], c[3]  (row group + 8, the same columns)
// Shared memory is told by plain pointers; 16 bytes are copied from and to multiples of 16.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda_device.h"

#ifndef __CUDACC__
#include "warp_matrix.h"
#endif

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {

// c += a b, [16][16] by [16][8] of f16, with sums in f32. By the whole warp.
__device__ __forceinline__ void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
#ifdef __CUDACC__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  ::sparkv::testing::MultiplyInWarp(c, a, b0, b1);
#endif
}

// Four matrices of 8 rows of 16 bytes in shared memory: lane l gives the address of row l % 8 of
// matrix l / 8. r[i]: of matrix i, row `group`, halves 2 pair and + 1. By the whole warp.
__device__ __forceinline__ void LoadMatrices(uint32_t (&r)[4], const void* row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
#else
  ::sparkv::testing::LoadMatricesInWarp(r, row, false);
#endif
}

// The same of the transposed matrices: r[i] has rows 2 pair and + 1 of column `group`.
__device__ __forceinline__ void LoadMatricesTransposed(uint32_t (&r)[4], const void* row) {
#ifdef __CUDACC__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
#else
  ::sparkv::testing::LoadMatricesInWarp(r, row, true);
#endif
}

// Starts the copy of `bytes` (0..16) from global to shared memory; zeros fill the rest of 16. With
// 0 bytes nothing is read.
__device__ __forceinline__ void CopyAsync16(void* shared, const void* global, uint32_t bytes) {
#ifdef __CUDACC__
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(__cvta_generic_to_global(global)), "r"(bytes)
               : "memory");
#else
  ::sparkv::testing::CopyAsync(shared, global, bytes);
#endif
}

// What this thread has started since the last call is one group.
__device__ __forceinline__ void CommitCopies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  ::sparkv::testing::CommitCopies();
#endif
}

// Waits until all but the youngest kLeft groups of this thread are there; others see them behind a
// barrier.
template <int kLeft>
__device__ __forceinline__ void WaitForCopies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#else
  ::sparkv::testing::WaitForCopies(kLeft);
#endif
}

// 2^x by the device's own instruction, to 2 units in the last place; 0 for what is below 2^-126.
__device__ __forceinline__ float Exp2(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0 : y;  // a NaN stays
#endif
}

// Two values as f16, round to nearest even.
__device__ __forceinline__ uint32_t PackHalves(float low, float high) {
#ifdef __CUDACC__
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#else
  return ::sparkv::testing::RoundToHalf(low) | uint32_t{::sparkv::testing::RoundToHalf(high)} << 16;
#endif
}

__device__ __forceinline__ float HalfBitsToFloat(uint16_t half) {
#ifdef __CUDACC__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
#else
  return ::sparkv::testing::ValueOfHalf(half);
#endif
}

__device__ __forceinline__ uint16_t FloatToHalfBits(float value) {
#ifdef __CUDACC__
  uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
#else
  return ::sparkv::testing::RoundToHalf(value);
#endif
}

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
