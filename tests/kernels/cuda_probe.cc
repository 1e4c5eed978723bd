// Prints the GPU that tests of CUDA kernels use and exits with 0, or says why there is none and
// exits with 77. A link check too: it names a kernel's launcher.
#include <cuda_runtime_api.h>

#include <cstdio>

#include "kernels/rans_cuda.h"

int main() {
  int devices = 0, runtime = 0;
  cudaDeviceProp properties;
  cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices == 0) error = cudaErrorNoDevice;
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, 0);
  if (error == cudaSuccess) error = cudaRuntimeGetVersion(&runtime);
  if (error != cudaSuccess) {
    std::printf("no usable GPU here: %s\n", cudaGetErrorString(error));
    return 77;
  }
  const absl::Status status = sparkv::kernels::RansDecodeCuda(nullptr, 0, nullptr, nullptr);
  if (!status.ok()) {
    std::printf("%s\n", status.ToString().c_str());
    return 1;
  }
  std::printf("%s, sm_%d%d, %d multiprocessors, %.0f GiB, CUDA %d.%d\n", properties.name,
              properties.major, properties.minor, properties.multiProcessorCount,
              static_cast<double>(properties.totalGlobalMem) / (1 << 30), runtime / 1000,
              runtime % 1000 / 10);
  return 0;
}
