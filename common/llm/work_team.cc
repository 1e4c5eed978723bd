#include "common/llm/work_team.h"

#include <algorithm>
#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sparkv {
namespace {

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until value differs from old.
void WaitWhile(const std::atomic<uint32_t>& value, uint32_t old) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    for (int i = 0; i < 64; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      Pause();
    }
    if (std::chrono::steady_clock::now() - start > std::chrono::microseconds(20)) break;
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

WorkTeam::WorkTeam(int threads) : threads_(std::max(1, threads)) {
  for (int i = 1; i < threads_; ++i) workers_.emplace_back([this, i] { Work(i); });
}

WorkTeam::~WorkTeam() {
  stopping_.store(true, std::memory_order_release);
  job_.fetch_add(1, std::memory_order_acq_rel);
  job_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void WorkTeam::Work(int member) {
  for (uint32_t job = 0;; ++job) {
    WaitWhile(job_, job);
    if (stopping_.load(std::memory_order_acquire)) return;
    (*fn_)(member);
    Barrier();
  }
}

void WorkTeam::Run(const std::function<void(int)>& fn) {
  if (threads_ == 1) return fn(0);
  fn_ = &fn;
  job_.fetch_add(1, std::memory_order_acq_rel);
  job_.notify_all();
  fn(0);
  Barrier();
}

void WorkTeam::Barrier() {
  if (threads_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(threads_)) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(1, std::memory_order_acq_rel);
    phase_.notify_all();
  } else {
    WaitWhile(phase_, phase);
  }
}

void WorkTeam::ParallelFor(size_t n, size_t grain, const std::function<void(size_t, size_t)>& fn) {
  if (n == 0) return;
  const size_t most = n / std::max<size_t>(1, grain);
  if (threads_ == 1 || most <= 1) return fn(0, n);
  const int members = static_cast<int>(std::min<size_t>(most, static_cast<size_t>(threads_)));
  Run([&](int member) {
    if (member >= members) return;
    const Share share = ShareOf(n, member, members);
    if (share.begin < share.end) fn(share.begin, share.end);
  });
}

}  // namespace sparkv
