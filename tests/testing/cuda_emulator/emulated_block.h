// One block of an emulated grid: its threads as fibers, its shared memory, and where they wait for
// each other.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/cuda_emulator/cuda_emulator.h"
#include "tests/testing/cuda_emulator/guarded_memory.h"

namespace sparkv::testing {

inline constexpr unsigned kMaxBlockThreads = 1024;

class EmulatedBlock {
 public:
  // order: [threads], the threads in the order in which they run. edge, fill: of shared memory.
  EmulatedBlock(const std::vector<unsigned>& order, size_t shared_bytes, GuardedMemory::Edge edge,
                uint8_t fill, const std::function<void()>& thread);
  ~EmulatedBlock();
  EmulatedBlock(const EmulatedBlock&) = delete;
  EmulatedBlock& operator=(const EmulatedBlock&) = delete;

  // Runs all threads; empty, or what went wrong. blockIdx, blockDim and gridDim are set. What a
  // thread throws comes out of here.
  std::string Run();

  // The block that runs now; nullptr between blocks.
  static EmulatedBlock* Current();

  // By the running thread.
  void* Shared(const void* key, size_t bytes, size_t alignment);
  unsigned char* dynamic_shared() const { return dynamic_.data(); }
  unsigned lane() const { return running_ % 32; }
  void MeetInWarp(const char* name, unsigned mask, void* operand, WarpCombine combine);
  bool MeetInBlock(bool predicate);
  // Whether bytes lie within one array of shared memory.
  bool IsShared(const void* address, size_t bytes) const;
  // cp.async: copies of the running thread, done when it waits for their group.
  void QueueCopy(void* to, const void* from, uint32_t bytes);
  void CommitCopies();
  void WaitForCopies(unsigned left);
  void CountBankConflicts(unsigned passes) { bank_conflicts_ += passes; }
  uint64_t bank_conflicts() const { return bank_conflicts_; }
  // Ends the block. The caller's stack is left as it is: no destructor runs, so that strings must
  // have been moved into the call.
  [[noreturn]] void Fail(std::string what);
  // The same for an access to `address`, in memory or near null. Allocates nothing.
  [[noreturn]] void Fault(const void* address, const GuardedMemory* memory);

 private:
  enum class State { kRunnable, kAtBarrier, kInWarp, kReturned };
  struct Thread {
    State state = State::kRunnable;
    const char* name = nullptr;  // kInWarp: of the intrinsic
    unsigned mask = 0;
    void* operand = nullptr;
    WarpCombine combine = nullptr;
  };
  struct Copy {
    void* to;
    const void* from;
    uint32_t bytes;
  };
  struct Copies {
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;  // the oldest first
  };
  struct Warp {
    unsigned present = 0, waiting = 0, returned = 0;  // bits of lanes
  };

  static void Enter(void* block);
  void Return();
  void Resume(unsigned thread);
  bool CompleteWarp(unsigned warp, unsigned lane);
  void SetRunnable(unsigned thread, bool runnable);
  void RunNext();
  std::string WhereAll() const;
  void SetFailure(const std::string& what);
  [[noreturn]] void FailWithAll(const char* what);

  const std::vector<unsigned>& order_;
  std::vector<unsigned> rank_;  // [threads], its place in order_
  const GuardedMemory::Edge edge_;
  const uint8_t fill_;
  const std::function<void()>& thread_;
  GuardedMemory dynamic_;
  std::map<const void*, std::unique_ptr<GuardedMemory>> shared_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Copies> copies_;  // of each thread
  uint64_t bank_conflicts_ = 0;
  std::array<uint64_t, kMaxBlockThreads / 64> runnable_{};  // bits by rank
  unsigned running_ = 0;
  unsigned at_barrier_ = 0, returned_ = 0;
  bool held_ = false, held_before_ = false;  // at this barrier, at the last one
  std::string failure_;
  bool faulted_ = false;
  const void* fault_ = nullptr;
  const GuardedMemory* fault_memory_ = nullptr;
  std::exception_ptr exception_;
};

}  // namespace sparkv::testing
