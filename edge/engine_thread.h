// The one thread that makes all Decoder calls (LibTorch keeps an OpenMP pool per calling thread),
// and the queue before it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/base/cancel.h"

namespace sparkv {

// Runs jobs one after the other in the order of Post. Thread-safe.
class EngineThread {
 public:
  struct Job {
    // The work; on the engine thread. Not called for a job that was cancelled while it waited.
    std::function<void()> run;
    // Called once instead of run, with Cancelled, when the job was cancelled while waiting or the
    // thread shuts down; on the engine thread or on the one that calls Shutdown.
    std::function<void(absl::Status)> dropped;
    // Jobs before this one, the running one included: called when it is accepted and as it falls,
    // never with 0; by Post or on the engine thread. Must not block nor call this object.
    std::function<void(uint32_t)> position;
    // Cancel() takes a waiting job out of the queue at the next Kick or when its turn comes.
    CancelToken cancel;
  };

  // At most `max_queue` jobs wait besides the running one.
  explicit EngineThread(uint32_t max_queue);
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // ResourceExhausted when max_queue jobs wait already, Unavailable after Shutdown: nothing of the
  // job is called then.
  absl::Status Post(Job job);
  // Takes cancelled jobs out of the queue now.
  void Kick();
  // Cancels the running job's and every waiting job's token, drops the waiting ones and joins.
  // Idempotent.
  void Shutdown();

  // Waiting jobs, and the running one.
  uint32_t queue_length() const;
  uint32_t max_queue() const { return max_queue_; }

 private:
  void Run();
  // Removes cancelled jobs (all of them when `all`) from the queue for the caller to drop without
  // the lock.
  std::list<Job> TakeDropped(bool all) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReportPositions() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint32_t max_queue_;
  mutable absl::Mutex mutex_;
  std::list<Job> queue_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  CancelToken running_cancel_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Mutex join_mutex_;
  std::thread thread_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace sparkv
