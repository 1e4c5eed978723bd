// Threads that run one function together, with barriers inside it: a decode step has some 180
// phases of a few microseconds to a few hundred, too short for a queue and a condition variable
// each.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace sparkv {

// Waits spin for some 20 us and then sleep in the kernel, so an idle team costs no CPU. One thread
// calls Run at a time.
class WorkTeam {
 public:
  // `threads` members, the caller of Run included; at least 1.
  explicit WorkTeam(int threads);
  ~WorkTeam();
  WorkTeam(const WorkTeam&) = delete;
  WorkTeam& operator=(const WorkTeam&) = delete;

  int threads() const { return threads_; }

  // Runs fn(member) for members 0 (the caller) to threads() - 1 at once; returns when all have
  // ended. fn must not throw.
  void Run(const std::function<void(int)>& fn);
  // Inside fn, called by every member equally often: returns when all have come. What a member
  // wrote before is visible to all after it.
  void Barrier();

  // Splits [0, n) into ranges of at least `grain` and runs fn(begin, end) on the members. Not
  // inside Run.
  void ParallelFor(size_t n, size_t grain, const std::function<void(size_t, size_t)>& fn);

 private:
  void Work(int member);

  const int threads_;
  const std::function<void(int)>* fn_ = nullptr;
  std::atomic<uint32_t> job_{0};      // grows by one for each Run
  std::atomic<uint32_t> arrived_{0};  // members at the barrier
  std::atomic<uint32_t> phase_{0};    // grows by one for each barrier passed
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

// Member `member` of `members` gets [begin, end) of [0, n), in multiples of `unit` but for the
// last.
struct Share {
  size_t begin;
  size_t end;
};
inline Share ShareOf(size_t n, int member, int members, size_t unit = 1) {
  const size_t units = (n + unit - 1) / unit;
  const auto m = static_cast<size_t>(member), of = static_cast<size_t>(members);
  const size_t begin = units * m / of * unit, end = units * (m + 1) / of * unit;
  return {begin < n ? begin : n, end < n ? end : n};
}

}  // namespace sparkv
