// GpuTarget: apart from the emulator, whose names are those of CUDA's headers.
#include "tests/kernels/cuda_target.h"

#ifdef SPARKV_HAS_CUDA
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#endif

namespace sparkv::testing {

#ifdef SPARKV_HAS_CUDA
namespace {

absl::Status ToStatus(const char* what, cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", cudaGetErrorString(error)));
}

// One piece of the device's memory with a copy here: what was put lies in it, with a pattern
// between, which must be as before after a launch.
class Gpu : public CudaTarget {
 public:
  Gpu(std::string name, uint8_t* device) : name_(std::move(name)), device_(device) {
    host_.reserve(kBytes);
    Clear();
  }
  ~Gpu() override { cudaFree(device_); }

  static constexpr size_t kBytes = size_t{256} << 20;

  std::string name() const override { return name_; }
  bool emulated() const override { return false; }
  kernels::CudaStream stream() override { return nullptr; }

  uint8_t* Put(const char*, std::span<const uint8_t> bytes, bool odd) override {
    const size_t at = (host_.size() + kGap) / kAlignment * kAlignment + (odd ? 1 : 0);
    if (bytes.size() > kBytes - kGap || at > kBytes - kGap - bytes.size()) std::abort();
    host_.resize(at, kPattern);
    host_.insert(host_.end(), bytes.begin(), bytes.end());
    pieces_.push_back({at, bytes.size()});
    return device_ + at;
  }

  absl::Status Run(const std::function<absl::Status()>& launch) override {
    host_.resize(host_.size() + kGap, kPattern);
    absl::Status status =
        ToStatus("copying to the device",
                 cudaMemcpy(device_, host_.data(), host_.size(), cudaMemcpyHostToDevice));
    if (status.ok()) status = launch();
    if (status.ok()) status = ToStatus("waiting for the device", cudaDeviceSynchronize());
    if (status.ok()) {
      status = ToStatus("copying from the device",
                        cudaMemcpy(host_.data(), device_, host_.size(), cudaMemcpyDeviceToHost));
    }
    if (!status.ok()) return status;
    size_t gap = 0;
    for (const Piece& piece : pieces_) {
      if (!Untouched(gap, piece.at)) return absl::InternalError("a write beside what was put");
      gap = piece.at + piece.bytes;
    }
    if (!Untouched(gap, host_.size())) return absl::InternalError("a write beside what was put");
    return absl::OkStatus();
  }

  const uint8_t* Result(const void* device) const override {
    return host_.data() + (static_cast<const uint8_t*>(device) - device_);
  }

  void Clear() override {
    host_.clear();
    pieces_.clear();
  }

 private:
  struct Piece {
    size_t at, bytes;
  };
  static constexpr size_t kAlignment = 256, kGap = 512;
  static constexpr uint8_t kPattern = 0xDB;

  bool Untouched(size_t from, size_t to) const {
    return std::all_of(host_.begin() + static_cast<ptrdiff_t>(from),
                       host_.begin() + static_cast<ptrdiff_t>(to),
                       [](uint8_t b) { return b == kPattern; });
  }

  const std::string name_;
  uint8_t* const device_;
  std::vector<uint8_t> host_;
  std::vector<Piece> pieces_;
};

}  // namespace

std::unique_ptr<CudaTarget> GpuTarget(std::string* why_not) {
  int devices = 0;
  cudaError_t error = cudaGetDeviceCount(&devices);
  cudaDeviceProp properties;
  if (error == cudaSuccess && devices == 0) error = cudaErrorNoDevice;
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, 0);
  void* memory = nullptr;
  if (error == cudaSuccess) error = cudaMalloc(&memory, Gpu::kBytes);
  if (error != cudaSuccess) {
    *why_not = absl::StrCat("no usable GPU here: ", cudaGetErrorString(error));
    return nullptr;
  }
  return std::make_unique<Gpu>(
      absl::StrCat("CUDA kernel on ", properties.name, ", sm_", properties.major, properties.minor),
      static_cast<uint8_t*>(memory));
}

#else

std::unique_ptr<CudaTarget> GpuTarget(std::string* why_not) {
  *why_not = "this build has no CUDA kernels (SPARKV_CUDA is off)";
  return nullptr;
}

#endif

}  // namespace sparkv::testing
