// Quantized weights on a device: to f16, and times up to eight vectors. Lanes take runs of four
// values; layouts as in gguf_dequant_cpu.cc.
#include "kernels/cuda_mma.h"
#include "kernels/gguf_cuda_launch.h"

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {
namespace {

// Two bytes, of an even address.
__device__ __forceinline__ uint32_t Load16(const uint8_t* p) {
  return __ldg(reinterpret_cast<const uint16_t*>(p));
}
__device__ __forceinline__ uint32_t Load32(const uint8_t* p) {
  return Load16(p) | Load16(p + 2) << 16;
}
__device__ __forceinline__ float LoadHalf(const uint8_t* p) {
  return HalfBitsToFloat(static_cast<uint16_t>(Load16(p)));
}
// Byte i of four, as a number below 256.
__device__ __forceinline__ int ByteOf(uint32_t four, uint32_t i) {
  return static_cast<int>(four >> (8 * i) & 0xFF);
}

// Blocks of a type. Four(block, run, w): values 4 run .. 4 run + 3 of a block.
template <CudaWeightType kType>
struct Weights;

template <>
struct Weights<CudaWeightType::kQ8_0> {
  static constexpr uint32_t kValues = 32, kBytes = 34;
  __device__ __forceinline__ static void Four(const uint8_t* block, uint32_t run, float (&w)[4]) {
    const float d = LoadHalf(block);
    const uint32_t four = Load32(block + 2 + 4 * run);
    SPARKV_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      w[i] = d * static_cast<float>(static_cast<int8_t>(ByteOf(four, i)));
    }
  }
};

template <>
struct Weights<CudaWeightType::kQ4_0> {
  static constexpr uint32_t kValues = 32, kBytes = 18;
  __device__ __forceinline__ static void Four(const uint8_t* block, uint32_t run, float (&w)[4]) {
    const float d = LoadHalf(block);
    const uint32_t four = Load32(block + 2 + run % 4 * 4) >> (run / 4 * 4);
    SPARKV_UNROLL
    for (uint32_t i = 0; i < 4; ++i) w[i] = d * static_cast<float>((ByteOf(four, i) & 15) - 8);
  }
};

template <>
struct Weights<CudaWeightType::kQ4_1> {
  static constexpr uint32_t kValues = 32, kBytes = 20;
  __device__ __forceinline__ static void Four(const uint8_t* block, uint32_t run, float (&w)[4]) {
    const float d = LoadHalf(block), m = LoadHalf(block + 2);
    const uint32_t four = Load32(block + 4 + run % 4 * 4) >> (run / 4 * 4);
    SPARKV_UNROLL
    for (uint32_t i = 0; i < 4; ++i) w[i] = d * static_cast<float>(ByteOf(four, i) & 15) + m;
  }
};

template <>
struct Weights<CudaWeightType::kQ4_K> {
  static constexpr uint32_t kValues = 256, kBytes = 144;
  __device__ __forceinline__ static void Four(const uint8_t* block, uint32_t run, float (&w)[4]) {
    const uint32_t j = run / 8;  // of eight runs of 32 values, two in each 32 bytes
    const uint8_t* const scales = block + 4;
    uint32_t scale, minimum;  // of six bits
    if (j < 4) {
      scale = __ldg(scales + j) & 63u;
      minimum = __ldg(scales + j + 4) & 63u;
    } else {
      const uint32_t low = __ldg(scales + j + 4);
      scale = (low & 15) | static_cast<uint32_t>(__ldg(scales + j - 4)) >> 6 << 4;
      minimum = low >> 4 | static_cast<uint32_t>(__ldg(scales + j)) >> 6 << 4;
    }
    const float d = LoadHalf(block) * static_cast<float>(scale);
    const float m = LoadHalf(block + 2) * static_cast<float>(minimum);
    const uint32_t four = Load32(block + 16 + j / 2 * 32 + run % 8 * 4) >> (j % 2 * 4);
    SPARKV_UNROLL
    for (uint32_t i = 0; i < 4; ++i) w[i] = d * static_cast<float>(ByteOf(four, i) & 15) - m;
  }
};

template <>
struct Weights<CudaWeightType::kQ6_K> {
  static constexpr uint32_t kValues = 256, kBytes = 210;
  __device__ __forceinline__ static void Four(const uint8_t* block, uint32_t run, float (&w)[4]) {
    // Halves of 128 values in four quarters of 32: nibbles from two runs of 32 bytes, their upper
    // bits from the same 32 bytes.
    const uint32_t half = run / 32, quarter = run % 32 / 8, at = run % 8 * 4;
    const uint32_t low = Load32(block + 64 * half + quarter % 2 * 32 + at) >> (quarter / 2 * 4);
    const uint32_t high = Load32(block + 128 + 32 * half + at) >> (2 * quarter);
    const auto scale = static_cast<int8_t>(__ldg(block + 192 + 8 * half + 2 * quarter + at / 16));
    const float d = LoadHalf(block + 208) * static_cast<float>(scale);
    SPARKV_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      w[i] = d * static_cast<float>(((ByteOf(low, i) & 15) | (ByteOf(high, i) & 3) << 4) - 32);
    }
  }
};

constexpr uint32_t kThreads = 256, kLinearWarps = 4;

template <CudaWeightType kType>
__global__ void __launch_bounds__(kThreads)
    GgufToHalfKernel(const uint8_t* w, size_t runs, uint16_t* out) {
  using Block = Weights<kType>;
  constexpr uint32_t kRuns = Block::kValues / 4;
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= runs) return;
  float four[4];
  Block::Four(w + i / kRuns * Block::kBytes, static_cast<uint32_t>(i % kRuns), four);
  SPARKV_UNROLL
  for (uint32_t j = 0; j < 4; ++j) out[4 * i + j] = FloatToHalfBits(four[j]);
}

// A warp for each row.
template <CudaWeightType kType, uint32_t kBatch>
__global__ void __launch_bounds__(kLinearWarps* kWarpSize)
    GgufLinearKernel(const GgufLinearCudaArgs a) {
  using Block = Weights<kType>;
  constexpr uint32_t kRuns = Block::kValues / 4;
  const size_t row = size_t{blockIdx.x} * kLinearWarps + threadIdx.x / kWarpSize;
  if (row >= a.rows) return;
  const uint32_t lane = threadIdx.x % kWarpSize, runs = static_cast<uint32_t>(a.k) / 4;
  const uint8_t* const w = a.w + row * (a.k / Block::kValues * Block::kBytes);
  float sum[kBatch] = {};
  for (uint32_t run = lane; run < runs; run += kWarpSize) {
    float four[4];
    Block::Four(w + size_t{run / kRuns} * Block::kBytes, run % kRuns, four);
    SPARKV_UNROLL
    for (uint32_t b = 0; b < kBatch; ++b) {
      if (b >= a.batch) continue;
      const float* const x = a.x + b * a.x_stride + 4 * size_t{run};
      SPARKV_UNROLL
      for (uint32_t i = 0; i < 4; ++i) sum[b] += four[i] * __ldg(x + i);
    }
  }
  SPARKV_UNROLL
  for (uint32_t b = 0; b < kBatch; ++b) {
    SPARKV_UNROLL
    for (int step = 16; step > 0; step /= 2) {
      sum[b] += __shfl_xor_sync(kWholeWarp, sum[b], step);
    }
    if (lane == 0 && b < a.batch) a.y[b * a.y_stride + row] = sum[b];
  }
}

template <CudaWeightType kType>
const char* StartLinear(const GgufLinearCudaArgs& a, CudaStream stream) {
  const dim3 grid(static_cast<uint32_t>((a.rows + kLinearWarps - 1) / kLinearWarps));
  const dim3 block(kLinearWarps * kWarpSize);
  return a.batch == 1
             ? Launch(GgufLinearKernel<kType, 1>, grid, block, 0, stream, a)
             : Launch(GgufLinearKernel<kType, kCudaLinearBatch>, grid, block, 0, stream, a);
}

template <CudaWeightType kType>
const char* StartToHalf(const uint8_t* w, size_t values, uint16_t* out, CudaStream stream) {
  const size_t runs = values / 4;
  return Launch(GgufToHalfKernel<kType>,
                dim3(static_cast<uint32_t>((runs + kThreads - 1) / kThreads)), dim3(kThreads), 0,
                stream, w, runs, out);
}

}  // namespace

const char* LaunchGgufToHalf(CudaWeightType type, const uint8_t* w, size_t values, uint16_t* out,
                             CudaStream stream) {
  if (values == 0) return nullptr;
  switch (type) {
    case CudaWeightType::kQ4_0:
      return StartToHalf<CudaWeightType::kQ4_0>(w, values, out, stream);
    case CudaWeightType::kQ4_1:
      return StartToHalf<CudaWeightType::kQ4_1>(w, values, out, stream);
    case CudaWeightType::kQ8_0:
      return StartToHalf<CudaWeightType::kQ8_0>(w, values, out, stream);
    case CudaWeightType::kQ4_K:
      return StartToHalf<CudaWeightType::kQ4_K>(w, values, out, stream);
    case CudaWeightType::kQ6_K:
      return StartToHalf<CudaWeightType::kQ6_K>(w, values, out, stream);
  }
  return "no such type of weights";
}

const char* LaunchGgufLinear(const GgufLinearCudaArgs& a, CudaStream stream) {
  if (a.rows == 0) return nullptr;
  switch (a.type) {
    case CudaWeightType::kQ4_0:
      return StartLinear<CudaWeightType::kQ4_0>(a, stream);
    case CudaWeightType::kQ4_1:
      return StartLinear<CudaWeightType::kQ4_1>(a, stream);
    case CudaWeightType::kQ8_0:
      return StartLinear<CudaWeightType::kQ8_0>(a, stream);
    case CudaWeightType::kQ4_K:
      return StartLinear<CudaWeightType::kQ4_K>(a, stream);
    case CudaWeightType::kQ6_K:
      return StartLinear<CudaWeightType::kQ6_K>(a, stream);
  }
  return "no such type of weights";
}

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
