#include "tests/testing/cuda_emulator/cuda_emulator.h"

#include <signal.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_emulator/emulated_block.h"
#include "tests/testing/cuda_emulator/guarded_memory.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace sparkv::testing {
namespace {

constexpr uintptr_t kNearNull = uintptr_t{64} << 10;

// Turns faults of emulated threads into failed launches while it lives; others take their course.
class FaultHandler {
 public:
  FaultHandler() {
    struct sigaction action = {};
    action.sa_sigaction = &FaultHandler::Handle;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;  // the handler need not end
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &before);
  }
  ~FaultHandler() { sigaction(SIGSEGV, &before, nullptr); }
  FaultHandler(const FaultHandler&) = delete;
  FaultHandler& operator=(const FaultHandler&) = delete;

 private:
  static void Handle(int, siginfo_t* info, void*) {
    EmulatedBlock* const block = EmulatedBlock::Current();
    const GuardedMemory* const memory = GuardedMemory::Near(info->si_addr);
    if (block == nullptr ||
        (memory == nullptr && reinterpret_cast<uintptr_t>(info->si_addr) >= kNearNull)) {
      sigaction(SIGSEGV, &before, nullptr);  // comes again, to the handler from before
      return;
    }
    block->Fault(info->si_addr, memory);
  }

  static struct sigaction before;
};
struct sigaction FaultHandler::before = {};

void Put(std::vector<unsigned>* numbers, ThreadOrder order, std::mt19937_64& rng) {
  std::iota(numbers->begin(), numbers->end(), 0u);
  if (order == ThreadOrder::kDescending) std::reverse(numbers->begin(), numbers->end());
  if (order == ThreadOrder::kShuffled) std::shuffle(numbers->begin(), numbers->end(), rng);
}

}  // namespace

CudaEmulator::CudaEmulator(ThreadOrder order, uint64_t seed) : order_(order), seed_(seed) {}

CudaEmulator& CudaEmulator::Of(kernels::CudaStream stream) {
  static auto* const ascending = new CudaEmulator(ThreadOrder::kAscending);
  return stream == nullptr ? *ascending : *reinterpret_cast<CudaEmulator*>(stream);
}

const char* CudaEmulator::Launch(dim3 grid, dim3 block, size_t shared_bytes,
                                 const std::function<void()>& thread) {
  failure_.clear();
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  constexpr size_t kMaxSharedBytes = 227 << 10;  // of compute capability 9.0
  if (threads == 0 || threads > kMaxBlockThreads || block.z > 64) {
    failure_ = absl::StrCat("a block of ", threads, " threads");
  } else if (blocks == 0 || blocks > (1u << 31) - 1 || grid.y > 65535 || grid.z > 65535) {
    failure_ = absl::StrCat("a grid of ", blocks, " blocks");
  } else if (shared_bytes > kMaxSharedBytes) {
    failure_ = absl::StrCat(shared_bytes, " bytes of shared memory");
  } else if (EmulatedBlock::Current() != nullptr) {
    failure_ = "a launch from a kernel";
  }
  if (!failure_.empty()) return failure_.c_str();

  std::optional<FaultHandler> handler;
  if (kFindsFaults) handler.emplace();
  std::mt19937_64 rng(seed_++);
  // Shared memory starts with other contents and lies at the other edge in another order.
  const auto edge =
      order_ == ThreadOrder::kDescending ? GuardedMemory::Edge::kStart : GuardedMemory::Edge::kEnd;
  const uint8_t fill = order_ == ThreadOrder::kAscending    ? 0x5A
                       : order_ == ThreadOrder::kDescending ? 0xA5
                                                            : 0xFF;
  std::vector<unsigned> thread_order(threads), block_order(blocks);
  Put(&block_order, order_, rng);
  blockDim = block;
  gridDim = grid;
  for (const unsigned b : block_order) {
    blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
    Put(&thread_order, order_, rng);
    EmulatedBlock running(thread_order, shared_bytes, edge, fill, thread);
    failure_ = running.Run();
    bank_conflicts_ += running.bank_conflicts();
    if (!failure_.empty()) return failure_.c_str();
  }
  const std::string damaged = GuardedMemory::Damaged();
  if (damaged.empty()) return nullptr;
  failure_ = absl::StrCat("a write outside of '", damaged, "'");
  return failure_.c_str();
}

void* SharedBytes(const void* key, size_t bytes, size_t alignment) {
  return EmulatedBlock::Current()->Shared(key, bytes, alignment);
}
unsigned char* DynamicSharedMemory() { return EmulatedBlock::Current()->dynamic_shared(); }
void FailThread(std::string what) { EmulatedBlock::Current()->Fail(std::move(what)); }
void MeetInWarp(const char* name, unsigned mask, void* operand, WarpCombine combine) {
  EmulatedBlock::Current()->MeetInWarp(name, mask, operand, combine);
}
unsigned Lane() { return EmulatedBlock::Current()->lane(); }
bool MeetInBlock(bool predicate) { return EmulatedBlock::Current()->MeetInBlock(predicate); }

unsigned Vote(const char* name, unsigned mask, bool predicate, unsigned* lanes) {
  struct Ballot {
    bool predicate;
    unsigned holds, lanes;
  } mine{predicate, 0, 0};
  MeetInWarp(name, mask, &mine, [](void* const* operands, unsigned all) {
    unsigned holds = 0;
    for (unsigned l = 0; l < 32; ++l) {
      if ((all >> l & 1) != 0 && static_cast<Ballot*>(operands[l])->predicate) holds |= 1u << l;
    }
    for (unsigned l = 0; l < 32; ++l) {
      if ((all >> l & 1) == 0) continue;
      static_cast<Ballot*>(operands[l])->holds = holds;
      static_cast<Ballot*>(operands[l])->lanes = all;
    }
  });
  *lanes = mine.lanes;
  return mine.holds;
}

uint64_t Exchange(const char* name, unsigned mask, uint64_t value, unsigned from) {
  struct Shuffle {
    uint64_t value;
    unsigned from;
    bool found;
    uint64_t result;
  } mine{value, from, false, 0};
  MeetInWarp(name, mask, &mine, [](void* const* operands, unsigned all) {
    for (unsigned l = 0; l < 32; ++l) {
      if ((all >> l & 1) == 0) continue;
      auto* const to = static_cast<Shuffle*>(operands[l]);
      to->found = to->from < 32 && (all >> to->from & 1) != 0;
      if (to->found) to->result = static_cast<const Shuffle*>(operands[to->from])->value;
    }
  });
  if (!mine.found) {
    FailThread(absl::StrCat(name, " reads lane ", from, ", which takes no part"));
  }
  return mine.result;
}

}  // namespace sparkv::testing
