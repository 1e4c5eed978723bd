#include "common/base/clock.h"

#include <chrono>

namespace sparkv {
namespace {
class SteadyClock final : public Clock {
 public:
  absl::Duration Now() const override {
    return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
};
}  // namespace

const Clock& RealClock() {
  static const SteadyClock* const clock = new SteadyClock;
  return *clock;
}
}  // namespace sparkv
