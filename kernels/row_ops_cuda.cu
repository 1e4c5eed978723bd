// The CUDA twins of the row operations.
#include <cmath>

#include "kernels/block_attention_args.h"
#include "kernels/cuda_mma.h"
#include "kernels/row_ops_launch.h"

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {
namespace {

constexpr uint32_t kThreads = 256, kWarps = kThreads / kWarpSize;

// The sum over the thread block, in each thread; `sums`: shared, [kWarps].
__device__ __forceinline__ float BlockSum(float x, float* sums) {
  SPARKV_UNROLL
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kWholeWarp, x, step);
  if (threadIdx.x % kWarpSize == 0) sums[threadIdx.x / kWarpSize] = x;
  __syncthreads();
  x = 0;
  for (uint32_t w = 0; w < kWarps; ++w) x += sums[w];
  return x;
}

// A thread block for each row.
__global__ void __launch_bounds__(kThreads) RmsNormKernel(const RmsNormCudaArgs a) {
  SPARKV_SHARED(float, sums, kWarps);
  const size_t row = size_t{blockIdx.x} * a.n;
  const auto n = static_cast<uint32_t>(a.n);
  // Each thread reads back only what it wrote itself.
  const float* const x = a.residual != nullptr ? a.residual + row : a.x + row;
  float square = 0;
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
    float value = x[i];
    if (a.residual != nullptr) a.residual[row + i] = value += a.x[row + i];
    square += value * value;
  }
  const float factor = 1 / sqrtf(BlockSum(square, sums) / static_cast<float>(n) + a.epsilon);
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
    const float y = x[i] * factor * __ldg(a.weight + i);
    if (a.y != nullptr) a.y[row + i] = y;
    if (a.y_half != nullptr) a.y_half[row + i] = FloatToHalfBits(y);
  }
}

__global__ void __launch_bounds__(kThreads) SiluMulKernel(const SiluMulCudaArgs a) {
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.n) return;
  const float gate = a.gate[i];
  const float out = gate / (1 + expf(-gate)) * a.up[i];
  if (a.out != nullptr) a.out[i] = out;
  if (a.out_half != nullptr) a.out_half[i] = FloatToHalfBits(out);
}

// A thread block for some pairs of all heads of a row.
__global__ void __launch_bounds__(kThreads) RopeKernel(const RopeCudaArgs a) {
  const size_t row = blockIdx.x, position = a.begin + row;
  const auto pairs = static_cast<uint32_t>(a.pairs);
  const uint32_t head = blockIdx.y;
  float* const x = a.x + row * a.row_stride + head * a.head_stride;
  for (uint32_t i = threadIdx.x; i < pairs; i += blockDim.x) {
    const float c = __ldg(a.cos + position * pairs + i), s = __ldg(a.sin + position * pairs + i);
    const uint32_t one = a.interleaved ? 2 * i : i, two = a.interleaved ? 2 * i + 1 : i + pairs;
    const float u = x[one], v = x[two];
    x[one] = u * c - v * s;
    x[two] = u * s + v * c;
  }
}

__global__ void __launch_bounds__(kThreads) StoreKvKernel(const StoreKvCudaArgs a) {
  const size_t row = blockIdx.x, token = a.begin + row;
  const uint32_t head = blockIdx.y;
  const size_t from = row * a.row_stride + head * a.head_stride;
  const size_t to = head * a.page_head_stride + token % kKeyBlock * a.dim;
  uint16_t* const k = a.k_pages[token / kKeyBlock] + to;
  uint16_t* const v = a.v_pages[token / kKeyBlock] + to;
  for (uint32_t i = threadIdx.x; i < a.dim; i += blockDim.x) {
    k[i] = FloatToHalfBits(__ldg(a.k + from + i));
    v[i] = FloatToHalfBits(__ldg(a.v + from + i));
  }
}

// Threads for rows of n, so that few of them idle.
dim3 ThreadsFor(size_t n) {
  const auto warps = static_cast<uint32_t>(n / kWarpSize + (n % kWarpSize != 0 ? 1 : 0));
  return dim3(kWarpSize * (warps < kWarps ? warps : kWarps));
}

}  // namespace

const char* LaunchRmsNorm(const RmsNormCudaArgs& a, CudaStream stream) {
  if (a.rows == 0) return nullptr;
  return Launch(RmsNormKernel, dim3(static_cast<uint32_t>(a.rows)), dim3(kThreads), 0, stream, a);
}

const char* LaunchSiluMul(const SiluMulCudaArgs& a, CudaStream stream) {
  if (a.n == 0) return nullptr;
  return Launch(SiluMulKernel, dim3(static_cast<uint32_t>((a.n + kThreads - 1) / kThreads)),
                dim3(kThreads), 0, stream, a);
}

const char* LaunchRope(const RopeCudaArgs& a, CudaStream stream) {
  if (a.rows == 0) return nullptr;
  return Launch(RopeKernel, dim3(static_cast<uint32_t>(a.rows), static_cast<uint32_t>(a.heads)),
                ThreadsFor(a.pairs), 0, stream, a);
}

const char* LaunchStoreKv(const StoreKvCudaArgs& a, CudaStream stream) {
  if (a.rows == 0) return nullptr;
  return Launch(StoreKvKernel,
                dim3(static_cast<uint32_t>(a.rows), static_cast<uint32_t>(a.kv_heads)),
                ThreadsFor(a.dim), 0, stream, a);
}

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
