// The dequantizer of codec `generic`: tiles of 32 tokens by 32 channels are turned over in shared
// memory, so that codes are read along tokens and rows are written along channels.
#include "kernels/block_attention_args.h"
#include "kernels/cuda_mma.h"
#include "kernels/kv_dequant_launch.h"

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {
namespace {

constexpr uint32_t kTile = 32, kRows = 8, kThreads = kTile * kRows;

__device__ __forceinline__ uint16_t Half(const uint8_t* params, uint32_t length, uint32_t which,
                                         uint32_t i) {
  return static_cast<uint16_t>(__ldg(params + 2 * which * length + i) |
                               __ldg(params + (2 * which + 1) * length + i) << 8);
}

__device__ __forceinline__ bool Usable(uint16_t lo, uint16_t step) {
  return (lo & 0x7C00) != 0x7C00 && step < 0x7C00;
}

// Before the values: whether all parameters are usable. A thread block for each job.
__global__ void __launch_bounds__(kThreads) KvCheckKernel(const KvDequantCudaArgs a) {
  const KvDequantCudaJob job = a.jobs[blockIdx.x];
  const uint32_t length = job.per_channel ? a.dim : a.tokens;
  bool bad = false;
  for (uint32_t i = threadIdx.x; i < length; i += kThreads) {
    bad |= !Usable(Half(job.params, length, 0, i), Half(job.params, length, 1, i));
  }
  const int any = __syncthreads_or(bad);
  if (threadIdx.x == 0) a.ok[blockIdx.x] = any ? 0 : 1;
}

__global__ void __launch_bounds__(kThreads) KvDequantKernel(const KvDequantCudaArgs a) {
  SPARKV_SHARED(uint8_t, codes, kTile * (kTile + 4));  // 9 words a row: no two in the same bank
  const KvDequantCudaJob job = a.jobs[blockIdx.y];
  const uint32_t length = job.per_channel ? a.dim : a.tokens;
  const uint32_t x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  const uint32_t first = blockIdx.x * kTile;
  for (uint32_t d0 = 0; d0 < a.dim; d0 += kTile) {
    __syncthreads();  // the tile before is done with
    for (uint32_t i = y; i < kTile; i += kRows) {
      if (d0 + i < a.dim && first + x < a.tokens)
        codes[i * (kTile + 4) + x] = __ldg(job.codes + size_t{d0 + i} * a.tokens + first + x);
    }
    __syncthreads();
    for (uint32_t i = y; i < kTile; i += kRows) {
      const uint32_t t = first + i, d = d0 + x;
      if (t >= a.tokens || d >= a.dim) continue;
      const uint32_t p = job.per_channel ? d : t;
      const float lo = HalfBitsToFloat(Half(job.params, length, 0, p));
      const float step = HalfBitsToFloat(Half(job.params, length, 1, p));
      const float code = static_cast<float>(codes[x * (kTile + 4) + i]);
      const float c = __fadd_rn(__fmul_rn(a.code_scale, code), a.code_offset);
      const float value = __fadd_rn(lo, __fmul_rn(step, c));
      const size_t token = job.first_token + t;
      job.pages[token / kKeyBlock][job.head_offset + token % kKeyBlock * a.dim + d] =
          FloatToHalfBits(fminf(fmaxf(value, -65504.0f), 65504.0f));
    }
  }
}

}  // namespace

const char* LaunchKvDequantize(const KvDequantCudaArgs& a, CudaStream stream) {
  if (a.count == 0) return nullptr;
  const char* const error = Launch(KvCheckKernel, dim3(a.count), dim3(kThreads), 0, stream, a);
  if (error != nullptr || a.tokens == 0) return error;
  return Launch(KvDequantKernel, dim3((a.tokens + kTile - 1) / kTile, a.count), dim3(kThreads), 0,
                stream, a);
}

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
