#include "tests/kernels/cuda_target.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/testing/cuda_emulator/cuda_emulator.h"
#include "tests/testing/cuda_emulator/guarded_memory.h"

namespace sparkv::testing {
namespace {

class EmulatedTarget : public CudaTarget {
 public:
  EmulatedTarget(std::string name, ThreadOrder order, GuardedMemory::Edge edge)
      : name_(std::move(name)), edge_(edge), emulator_(order, 1) {}

  std::string name() const override { return name_; }
  bool emulated() const override { return true; }
  kernels::CudaStream stream() override { return emulator_.stream(); }

  uint8_t* Put(const char* what, std::span<const uint8_t> bytes, bool odd) override {
    // An odd address costs a byte that is not guarded, unless the size is odd already.
    const bool at_start = edge_ == GuardedMemory::Edge::kStart;
    const size_t more = odd && (at_start || bytes.size() % 2 == 0) ? 1 : 0;
    memory_.push_back(std::make_unique<GuardedMemory>(what, bytes.size() + more, 1, edge_));
    uint8_t* const data = memory_.back()->data() + (at_start ? more : 0);
    std::copy(bytes.begin(), bytes.end(), data);
    return data;
  }

  absl::Status Run(const std::function<absl::Status()>& launch) override { return launch(); }
  const uint8_t* Result(const void* device) const override {
    return static_cast<const uint8_t*>(device);
  }
  void Clear() override { memory_.clear(); }
  uint64_t bank_conflicts() const override { return emulator_.bank_conflicts(); }

 private:
  const std::string name_;
  const GuardedMemory::Edge edge_;
  CudaEmulator emulator_;
  std::vector<std::unique_ptr<GuardedMemory>> memory_;
};

}  // namespace

std::vector<std::unique_ptr<CudaTarget>> EmulatedTargets() {
  using Edge = GuardedMemory::Edge;
  std::vector<std::unique_ptr<CudaTarget>> all;
  // The run with scalar twins need not repeat what another does.
  const char* const simd = std::getenv("SPARKV_SIMD");
  if (simd != nullptr && std::strcmp(simd, "scalar") == 0) return all;
  all.push_back(std::make_unique<EmulatedTarget>("CUDA kernel, emulated in ascending order",
                                                 ThreadOrder::kAscending, Edge::kEnd));
#ifdef __x86_64__  // elsewhere, under qemu above all, switches of fibers are slow
  all.push_back(std::make_unique<EmulatedTarget>("CUDA kernel, emulated in descending order",
                                                 ThreadOrder::kDescending, Edge::kStart));
  all.push_back(std::make_unique<EmulatedTarget>("CUDA kernel, emulated in shuffled order",
                                                 ThreadOrder::kShuffled, Edge::kEnd));
#endif
  return all;
}

}  // namespace sparkv::testing
