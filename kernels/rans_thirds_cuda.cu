// The CUDA twin of RansThirds: a warp for each stream.
#include "kernels/rans_cuda_streams.h"
#include "kernels/rans_warp.h"

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {
namespace {

// One value and its lane's state.
__device__ int16_t Step(const ThirdsModel& model, int32_t b, uint32_t* x) {
  const uint32_t slot = *x & (kRansFrequencySum - 1);
  const uint32_t t1 = b == 0 ? model.zero_to_one : model.inward;
  const uint32_t t2 = b == 0 ? 2u * model.zero_to_one : uint32_t{model.inward} + model.same;
  const bool past1 = slot >= t1, past2 = slot >= t2;
  const uint32_t start = past2 ? t2 : past1 ? t1 : 0;
  const uint32_t end = past2 ? kRansFrequencySum : past1 ? t2 : t1;
  *x = (end - start) * (*x >> kRansFrequencyBits) + slot - start;
  // Of a zero 1, -1, 0 in the three parts; of another value -sign, 0, sign.
  const int32_t sign = b < 0 ? -1 : 1;
  const int32_t of_zero = past2 ? 0 : past1 ? -1 : 1;
  const int32_t of_other = past2 ? sign : past1 ? 0 : -sign;
  return static_cast<int16_t>(3 * b + (b == 0 ? of_zero : of_other));
}

// One stream by one warp; the verdict is the same in all lanes.
__device__ bool Decode(const ThirdsCudaStream& in, uint32_t lane) {
  uint32_t x;
  if (!LoadRansState(in.states, in.state_bytes, in.length, lane, &x)) return false;
  RansWords words(in.words, in.word_bytes, lane);
  int16_t* values = in.values;
  for (uint32_t run = 0; run < in.runs; ++run) {
    const ThirdsModel model = in.models[run];
    for (uint32_t done = 0; done < in.length; done += kRansLanes) {
      if (in.length - done > lane) {
        int16_t* const at = values + done + lane;
        *at = Step(model, *at, &x);
      }
      if (!words.Refill(&x)) return false;
    }
    values += in.length;
  }
  return words.AtEnd(in.word_bytes, x);
}

__global__ void __launch_bounds__(kWarpSize* kRansWarps)
    RansThirdsKernel(const ThirdsCudaStream* streams, uint32_t count, uint8_t* ok) {
  const uint32_t lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const uint32_t number = blockIdx.x * (blockDim.x / kWarpSize) + warp;
  if (number >= count) return;
  const ThirdsCudaStream in = streams[number];
  const bool decoded = Decode(in, lane);
  if (lane == 0) ok[number] = decoded ? 1 : 0;
}

}  // namespace

const char* LaunchRansThirds(const ThirdsCudaStream* streams, uint32_t count, uint8_t* ok,
                             CudaStream stream) {
  const uint32_t warps = count < kRansWarps ? count : kRansWarps;
  return Launch(RansThirdsKernel, dim3((count + warps - 1) / warps), dim3(warps * kWarpSize), 0,
                stream, streams, count, ok);
}

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
