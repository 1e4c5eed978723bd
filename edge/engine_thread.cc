#include "edge/engine_thread.h"

#include "absl/strings/str_cat.h"

namespace sparkv {

EngineThread::EngineThread(uint32_t max_queue) : max_queue_(max_queue) {
  thread_ = std::thread([this] { Run(); });
}

EngineThread::~EngineThread() { Shutdown(); }

absl::Status EngineThread::Post(Job job) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return absl::UnavailableError("the daemon is shutting down");
  // With nothing running the job does not wait, so max_queue = 0 still serves one at a time.
  const size_t before = queue_.size() + (running_ ? 1 : 0);
  if (before > max_queue_) {
    return absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", queue_.size(),
                                                     " requests wait, max_queue is ", max_queue_,
                                                     "; try again later"));
  }
  queue_.push_back(std::move(job));
  if (before > 0 && queue_.back().position) queue_.back().position(static_cast<uint32_t>(before));
  return absl::OkStatus();
}

std::list<EngineThread::Job> EngineThread::TakeDropped(bool all) {
  std::list<Job> dropped;
  for (auto it = queue_.begin(); it != queue_.end();) {
    const auto next = std::next(it);
    if (all || it->cancel.cancelled()) dropped.splice(dropped.end(), queue_, it);
    it = next;
  }
  return dropped;
}

void EngineThread::ReportPositions() {
  uint32_t before = running_ ? 1 : 0;
  for (Job& job : queue_) {
    if (before > 0 && job.position) job.position(before);
    ++before;
  }
}

void EngineThread::Kick() {
  std::list<Job> dropped;
  {
    absl::MutexLock lock(&mutex_);
    dropped = TakeDropped(false);
    if (!dropped.empty()) ReportPositions();
  }
  for (Job& job : dropped) job.dropped(CancelledByCaller());
}

void EngineThread::Shutdown() {
  std::list<Job> dropped;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (running_) running_cancel_.Cancel();
    for (Job& job : queue_) job.cancel.Cancel();
    dropped = TakeDropped(true);
  }
  for (Job& job : dropped) job.dropped(absl::UnavailableError("the daemon is shutting down"));
  absl::MutexLock lock(&join_mutex_);
  if (thread_.joinable()) thread_.join();
}

uint32_t EngineThread::queue_length() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<uint32_t>(queue_.size()) + (running_ ? 1 : 0);
}

void EngineThread::Run() {
  while (true) {
    Job job;
    {
      absl::MutexLock lock(&mutex_);
      running_ = false;
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !queue_.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
      running_ = true;
      running_cancel_ = job.cancel;
      ReportPositions();
    }
    if (job.cancel.cancelled()) {
      job.dropped(CancelledByCaller());
    } else {
      job.run();
    }
  }
}

}  // namespace sparkv
