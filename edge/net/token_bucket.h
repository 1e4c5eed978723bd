// The arithmetic of a shaped link, without threads or clocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sparkv {

// Mbit/s over time: one rate, or one for each interval, repeated.
class RateTrace {
 public:
  RateTrace() = default;                                   // unlimited
  static absl::StatusOr<RateTrace> Constant(double mbit);  // InvalidArgument unless > 0 and <= 1e6
  // 1 to 1e6 rates >= 0, at least one > 0; interval_s > 0.
  static absl::StatusOr<RateTrace> Intervals(std::vector<double> mbit, double interval_s);
  // A text file: one Mbit/s for each line, '#' comments; a line "interval SECONDS" (default 1)
  // before the rates. InvalidArgument names the line.
  static absl::StatusOr<RateTrace> Parse(const std::string& text, const std::string& name);

  bool unlimited() const { return mbit_.empty(); }
  // When `bytes` that begin to be sent at `start_s` (seconds since the link began) are through.
  double FinishTime(double start_s, uint64_t bytes) const;
  // Mbit/s at a time; 0 may mean an outage, infinity when unlimited.
  double At(double time_s) const;
  double mean_mbit() const;

 private:
  std::vector<double> mbit_;
  double interval_s_ = 1;
};

// One direction of a link: bytes go out one after the other at the trace's rate.
class TokenBucket {
 public:
  explicit TokenBucket(RateTrace rate) : rate_(std::move(rate)) {}
  // Books `bytes` offered at now_s; returns when the last of them has left.
  double Send(double now_s, uint64_t bytes);
  double free_at() const { return free_s_; }
  void SetRate(RateTrace rate, double now_s);

 private:
  RateTrace rate_;
  double origin_s_ = 0;  // time at which the trace began
  double free_s_ = 0;
};

}  // namespace sparkv
