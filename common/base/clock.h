// Time as a dependency: code that waits or measures takes a Clock so that tests can drive it.
#pragma once

#include "absl/time/time.h"

namespace sparkv {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic time since an arbitrary origin. Thread-safe.
  virtual absl::Duration Now() const = 0;
};

// The process's monotonic clock. Lives for the whole process.
const Clock& RealClock();

}  // namespace sparkv
