#include "common/base/thread_pool.h"

#include <algorithm>
#include <utility>

#include "absl/synchronization/blocking_counter.h"

namespace sparkv {

ThreadPool::ThreadPool(int threads) {
  for (int i = 0; i < std::max(1, threads); ++i) workers_.emplace_back([this] { Run(); });
}

ThreadPool::~ThreadPool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Post(std::function<void()> fn) {
  absl::MutexLock lock(&mutex_);
  queue_.push_back(std::move(fn));
}

void ThreadPool::Run() {
  while (true) {
    std::function<void()> fn;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !queue_.empty();
      };
      mutex_.Await(absl::Condition(&has_work));
      if (queue_.empty()) return;
      fn = std::move(queue_.front());
      queue_.pop_front();
    }
    fn();
  }
}

void ParallelFor(ThreadPool* pool, size_t n, size_t grain,
                 const std::function<void(size_t, size_t)>& fn) {
  if (n == 0) return;
  grain = std::max<size_t>(1, grain);
  const size_t most = pool == nullptr ? 1 : static_cast<size_t>(pool->threads()) + 1;
  const size_t ranges = std::max<size_t>(1, std::min(most, n / grain));
  if (ranges == 1) return fn(0, n);
  const size_t step = (n + ranges - 1) / ranges;
  const size_t others = (n + step - 1) / step - 1;
  absl::BlockingCounter left(static_cast<int>(others));
  for (size_t r = 1; r <= others; ++r) {
    pool->Post([&fn, &left, begin = r * step, end = std::min(n, (r + 1) * step)] {
      fn(begin, end);
      left.DecrementCount();
    });
  }
  fn(0, std::min(n, step));
  left.Wait();
}

}  // namespace sparkv
