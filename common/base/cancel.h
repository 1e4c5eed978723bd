// A flag that any thread may raise and that long work polls between steps.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "absl/status/status.h"

namespace sparkv {

// Asked between the steps of long work: true means give up. Empty: never.
using CancelledFn = std::function<bool()>;

// What work that gave up ends with.
inline absl::Status CancelledByCaller() { return absl::CancelledError("cancelled by the caller"); }

// Copies share one flag. Thread-safe.
class CancelToken {
 public:
  CancelToken() : flag_(std::make_shared<std::atomic<bool>>(false)) {}
  void Cancel() const { flag_->store(true, std::memory_order_release); }
  bool cancelled() const { return flag_->load(std::memory_order_acquire); }
  // Ok, or Cancelled.
  absl::Status Check() const { return cancelled() ? CancelledByCaller() : absl::OkStatus(); }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

}  // namespace sparkv
