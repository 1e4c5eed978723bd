// Carries a request's messages from the engine thread to the RPC's own thread, so that a slow
// client never holds up the engine. Bounded by the request itself: its tokens and a bounded number
// of progress messages.
#pragma once

#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace sparkv {

// Thread-safe: any thread pushes, one pops.
template <typename Event>
class EventQueue {
 public:
  void Push(Event event) {
    absl::MutexLock lock(&mutex_);
    events_.push_back(std::move(event));
  }
  // Like Push, but replaces the newest waiting event if `same` holds for it: progress that nobody
  // has read yet.
  template <typename Same>
  void Replace(Event event, Same same) {
    absl::MutexLock lock(&mutex_);
    if (!events_.empty() && same(events_.back())) {
      events_.back() = std::move(event);
    } else {
      events_.push_back(std::move(event));
    }
  }
  // The last call: nothing is pushed after it.
  void Finish(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    status_ = std::move(status);
  }
  // The next event; nullopt when none came within `timeout` or when all were taken and Finish was
  // called (then *finished holds its status).
  std::optional<Event> Pop(absl::Duration timeout, std::optional<absl::Status>* finished) {
    absl::MutexLock lock(&mutex_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !events_.empty() || status_.has_value();
    };
    mutex_.AwaitWithTimeout(absl::Condition(&ready), timeout);
    if (!events_.empty()) {
      Event event = std::move(events_.front());
      events_.pop_front();
      return event;
    }
    *finished = status_;
    return std::nullopt;
  }

 private:
  absl::Mutex mutex_;
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparkv
