#include "edge/load/link_estimate.h"

#include <algorithm>

namespace sparkv {
namespace {

// The window: at least so long, and so many arrivals, for these come in pieces.
constexpr double kWindowSeconds = 0.15;
constexpr size_t kWindowArrivals = 3;
// Nothing for so long: nothing is expected.
constexpr double kDeadSeconds = 1;
// The prior weighs as much as measuring for so long at first, and nothing after a window.
constexpr double kPriorSeconds = 0.05;

}  // namespace

void LinkEstimate::SetBusy(double now_s, bool busy) {
  if (busy == busy_) return;
  busy_s_ = BusySeconds(now_s);
  busy_ = busy;
  since_s_ = now_s;
}

void LinkEstimate::OnBytes(double now_s, uint64_t bytes) {
  const double at = BusySeconds(now_s);
  if (samples_.empty()) {
    if (bytes > 0) samples_.push_back({at, bytes});
    return;
  }
  if (bytes <= samples_.back().bytes) return;
  samples_.push_back({at, bytes});
  while (samples_.size() > kWindowArrivals + 1 && at - samples_[1].busy_s >= kWindowSeconds)
    samples_.pop_front();
}

double LinkEstimate::BytesPerSecond(double now_s) const {
  const double silent = SilentSeconds(now_s);
  if (silent > kDeadSeconds) return 0;
  if (samples_.size() < 2) {
    // Half of the prior each window in which nothing comes.
    return silent <= kWindowSeconds ? prior_ : prior_ * kWindowSeconds / (kWindowSeconds + silent);
  }
  const double seconds = samples_.back().busy_s - samples_.front().busy_s;
  const auto bytes = static_cast<double>(samples_.back().bytes - samples_.front().bytes);
  // Since the last arrival another may be under way: it counts once it is overdue.
  const double gap = seconds / static_cast<double>(samples_.size() - 1);
  const double overdue = std::max(0.0, silent - 2 * gap);
  const double measured = (seconds + overdue) / kWindowSeconds;
  const double prior = prior_ > 0 ? kPriorSeconds * std::max(0.0, 1 - measured) : 0;
  return (prior_ * prior + bytes) / std::max(1e-6, prior + seconds + overdue);
}

double LinkEstimate::SilentSeconds(double now_s) const {
  if (!busy_) return 0;
  const double last = samples_.empty() ? 0 : samples_.back().busy_s;
  return std::max(0.0, BusySeconds(now_s) - last);
}

}  // namespace sparkv
