// A fixed set of worker threads. Waits are passive (condition variables), so idle workers cost no
// CPU.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace sparkv {

class ThreadPool {
 public:
  // `threads` workers, at least 1.
  explicit ThreadPool(int threads);
  // Runs what was posted, then joins.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()); }
  // Runs fn on a worker. Thread-safe.
  void Post(std::function<void()> fn);

 private:
  void Run();
  absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> workers_;
};

// Splits [0, n) into at most pool->threads() + 1 contiguous ranges of at least `grain` and runs
// fn(begin, end) on the workers and on the calling thread; returns when all have ended. fn must
// not throw. pool == nullptr or a single range runs on the caller.
void ParallelFor(ThreadPool* pool, size_t n, size_t grain,
                 const std::function<void(size_t, size_t)>& fn);

}  // namespace sparkv
