#include "tests/testing/cuda_emulator/emulated_block.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_emulator/fiber.h"

namespace sparkv::testing {
namespace {

constexpr size_t kStackBytes = size_t{128} << 10;

EmulatedBlock* current = nullptr;

// The stacks are kept from block to block.
std::vector<std::unique_ptr<Fiber>>& Fibers() {
  static auto* const fibers = new std::vector<std::unique_ptr<Fiber>>;
  return *fibers;
}

// The stack of the thread that launches. Made once: where it lies takes long to find out.
Fiber& Launcher() {
  static thread_local Fiber launcher;
  return launcher;
}

uint3 IndexOf(unsigned thread) {
  return {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
}

std::string Text(const uint3& i) { return absl::StrCat("(", i.x, ",", i.y, ",", i.z, ")"); }

std::string Hex(unsigned x) { return absl::StrCat("0x", absl::Hex(x, absl::kZeroPad8)); }

}  // namespace

EmulatedBlock* EmulatedBlock::Current() { return current; }

EmulatedBlock::EmulatedBlock(const std::vector<unsigned>& order, size_t shared_bytes,
                             GuardedMemory::Edge edge, uint8_t fill,
                             const std::function<void()>& thread)
    : order_(order),
      rank_(order.size()),
      edge_(edge),
      fill_(fill),
      thread_(thread),
      dynamic_("dynamic shared memory", shared_bytes, 16, edge, fill),
      threads_(order.size()),
      warps_((order.size() + 31) / 32),
      copies_(order.size()) {
  for (unsigned r = 0; r < order.size(); ++r) rank_[order[r]] = r;
  for (unsigned t = 0; t < order.size(); ++t) {
    warps_[t / 32].present |= 1u << (t % 32);
    SetRunnable(t, true);
  }
  while (Fibers().size() < order.size()) Fibers().push_back(std::make_unique<Fiber>(kStackBytes));
  for (size_t t = 0; t < order.size(); ++t) Fibers()[t]->Start(&EmulatedBlock::Enter, this);
  current = this;
}

EmulatedBlock::~EmulatedBlock() { current = nullptr; }

std::string EmulatedBlock::Run() {
  running_ = order_[0];
  threadIdx = IndexOf(running_);
  Fiber::Switch(&Launcher(), Fibers()[running_].get());
  if (faulted_) {
    SetFailure(absl::StrCat("an access to ",
                            fault_memory_ != nullptr
                                ? fault_memory_->Describe(fault_)
                                : absl::StrCat("address ", reinterpret_cast<uintptr_t>(fault_))));
  }
  if (exception_) std::rethrow_exception(exception_);
  if (failure_.empty()) {
    for (const auto& [key, memory] : shared_) {
      if (!memory->SlackIntact())
        failure_ = absl::StrCat("a write outside of '", memory->name(), "'");
    }
    if (!dynamic_.SlackIntact())
      failure_ = absl::StrCat("a write outside of '", dynamic_.name(), "'");
    if (!failure_.empty()) failure_ = absl::StrCat("block ", Text(blockIdx), ": ", failure_);
  }
  return failure_;
}

void EmulatedBlock::Enter(void* block) {
  auto* const self = static_cast<EmulatedBlock*>(block);
  try {
    self->thread_();
  } catch (...) {
    self->exception_ = std::current_exception();  // of a failed REQUIRE in a test's kernel
  }
  if (self->exception_) Fiber::Switch(Fibers()[self->running_].get(), &Launcher(), true);
  self->Return();
}

// The running thread is done; does not come back.
void EmulatedBlock::Return() {
  threads_[running_].state = State::kReturned;
  SetRunnable(running_, false);
  ++returned_;
  if (at_barrier_ > 0) FailWithAll("returned while others wait at __syncthreads: ");
  Warp& warp = warps_[running_ / 32];
  warp.returned |= 1u << (running_ % 32);
  // Lanes that wait for one that has returned need no longer.
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((warp.waiting >> lane & 1) != 0) CompleteWarp(running_ / 32, lane);
  }
  if (returned_ == threads_.size()) {
    Fiber::Switch(Fibers()[running_].get(), &Launcher(), true);
  }
  RunNext();
}

void EmulatedBlock::SetRunnable(unsigned thread, bool runnable) {
  const unsigned r = rank_[thread];
  const uint64_t bit = uint64_t{1} << (r % 64);
  if (runnable) {
    runnable_[r / 64] |= bit;
    threads_[thread].state = State::kRunnable;
  } else {
    runnable_[r / 64] &= ~bit;
  }
}

// Lets the first thread of the order that can run go on: threads get as far apart as they may.
void EmulatedBlock::RunNext() {
  for (unsigned i = 0; i < runnable_.size(); ++i) {
    if (runnable_[i] == 0) continue;
    Resume(order_[64 * i + static_cast<unsigned>(std::countr_zero(runnable_[i]))]);
    return;
  }
  FailWithAll("no thread can go on: ");
}

void EmulatedBlock::Resume(unsigned thread) {
  if (thread == running_) return;
  const unsigned before = running_;
  running_ = thread;
  threadIdx = IndexOf(thread);
  Fiber::Switch(Fibers()[before].get(), Fibers()[thread].get(),
                threads_[before].state == State::kReturned);
}

bool EmulatedBlock::MeetInBlock(bool predicate) {
  if (returned_ > 0) FailWithAll("__syncthreads after others have returned: ");
  threads_[running_].state = State::kAtBarrier;
  SetRunnable(running_, false);
  held_ |= predicate;
  if (++at_barrier_ == threads_.size()) {
    at_barrier_ = 0;
    held_before_ = held_;
    held_ = false;
    for (unsigned t = 0; t < threads_.size(); ++t) SetRunnable(t, true);
  }
  RunNext();
  return held_before_;  // the next one can't be over before this thread comes there
}

void EmulatedBlock::MeetInWarp(const char* name, unsigned mask, void* operand,
                               WarpCombine combine) {
  if ((mask >> lane() & 1) == 0) {
    Fail(absl::StrCat(name, " with mask ", Hex(mask), ", in which its own lane is not"));
  }
  threads_[running_] = {State::kInWarp, name, mask, operand, combine};
  SetRunnable(running_, false);
  warps_[running_ / 32].waiting |= 1u << lane();
  CompleteWarp(running_ / 32, lane());
  RunNext();
}

// Lets the lanes that wait with `lane` go on if all of them are there.
bool EmulatedBlock::CompleteWarp(unsigned warp_number, unsigned lane) {
  Warp& warp = warps_[warp_number];
  Thread* const lanes = threads_.data() + 32 * warp_number;
  const unsigned mask = lanes[lane].mask;
  const unsigned expected = mask & warp.present & ~warp.returned;
  if ((expected & ~warp.waiting) != 0) return false;
  void* operands[32] = {};
  for (unsigned l = 0; l < 32; ++l) {
    if ((expected >> l & 1) == 0) continue;
    if (lanes[l].mask != mask || std::strcmp(lanes[l].name, lanes[lane].name) != 0) return false;
    operands[l] = lanes[l].operand;
  }
  if (lanes[lane].combine != nullptr) lanes[lane].combine(operands, expected);
  warp.waiting &= ~expected;
  for (unsigned l = 0; l < 32; ++l) {
    if ((expected >> l & 1) != 0) SetRunnable(32 * warp_number + l, true);
  }
  return true;
}

void* EmulatedBlock::Shared(const void* key, size_t bytes, size_t alignment) {
  std::unique_ptr<GuardedMemory>& memory = shared_[key];
  if (memory == nullptr) {
    memory = std::make_unique<GuardedMemory>("shared memory", bytes, alignment, edge_, fill_);
  }
  return memory->data();
}

bool EmulatedBlock::IsShared(const void* address, size_t bytes) const {
  const auto* const at = static_cast<const uint8_t*>(address);
  const auto in = [&](const GuardedMemory& memory) {
    return at >= memory.data() && at <= memory.data() + memory.size() &&
           bytes <= static_cast<size_t>(memory.data() + memory.size() - at);
  };
  return in(dynamic_) || std::any_of(shared_.begin(), shared_.end(),
                                     [&](const auto& array) { return in(*array.second); });
}

void EmulatedBlock::QueueCopy(void* to, const void* from, uint32_t bytes) {
  copies_[running_].open.push_back({to, from, bytes});
}

void EmulatedBlock::CommitCopies() {
  Copies& mine = copies_[running_];
  mine.groups.push_back(std::move(mine.open));
  mine.open.clear();
}

void EmulatedBlock::WaitForCopies(unsigned left) {
  Copies& mine = copies_[running_];
  for (; mine.groups.size() > left; mine.groups.pop_front()) {
    for (const Copy& copy : mine.groups.front()) {
      if (copy.bytes > 0) std::memcpy(copy.to, copy.from, copy.bytes);
      std::memset(static_cast<uint8_t*>(copy.to) + copy.bytes, 0, 16 - copy.bytes);
    }
  }
}

std::string EmulatedBlock::WhereAll() const {
  std::map<std::string, std::pair<unsigned, unsigned>> groups;  // where: how many, the first
  for (unsigned t = 0; t < threads_.size(); ++t) {
    const Thread& thread = threads_[t];
    std::string where;
    switch (thread.state) {
      case State::kRunnable:
        where = "can run";
        break;
      case State::kAtBarrier:
        where = "wait at __syncthreads";
        break;
      case State::kInWarp:
        where = absl::StrCat("wait at ", thread.name, " ", Hex(thread.mask));
        break;
      case State::kReturned:
        where = "returned";
        break;
    }
    auto& group = groups[where];
    if (group.first++ == 0) group.second = t;
  }
  std::string out;
  for (const auto& [where, group] : groups) {
    absl::StrAppend(&out, out.empty() ? "" : ", ", group.first, " ", where, " (the first is ",
                    Text(IndexOf(group.second)), ")");
  }
  return out;
}

void EmulatedBlock::FailWithAll(const char* what) {
  std::string text = absl::StrCat(what, WhereAll());
  Fail(std::move(text));
}

void EmulatedBlock::SetFailure(const std::string& what) {
  failure_ = absl::StrCat("block ", Text(blockIdx), ", thread ", Text(threadIdx), ": ", what);
}

void EmulatedBlock::Fail(std::string what) {
  SetFailure(what);
  std::string().swap(what);  // what is on this stack is never destroyed
  Fiber::Switch(Fibers()[running_].get(), &Launcher(), true);
  __builtin_unreachable();
}

void EmulatedBlock::Fault(const void* address, const GuardedMemory* memory) {
  faulted_ = true;
  fault_ = address;
  fault_memory_ = memory;
  Fiber::Switch(Fibers()[running_].get(), &Launcher(), true);
  __builtin_unreachable();
}

}  // namespace sparkv::testing
