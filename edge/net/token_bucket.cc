#include "edge/net/token_bucket.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sparkv {
namespace {

constexpr double kMaxMbit = 1e6;
constexpr size_t kMaxIntervals = 1000000;

}  // namespace

absl::StatusOr<RateTrace> RateTrace::Constant(double mbit) {
  if (!(mbit > 0 && mbit <= kMaxMbit)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a link rate of ", mbit, " Mbit/s, allowed: above 0 to ", kMaxMbit));
  }
  RateTrace trace;
  trace.mbit_ = {mbit};
  return trace;
}

absl::StatusOr<RateTrace> RateTrace::Intervals(std::vector<double> mbit, double interval_s) {
  if (mbit.empty() || mbit.size() > kMaxIntervals) {
    return absl::InvalidArgumentError(
        absl::StrCat(mbit.size(), " rates, allowed: 1..", kMaxIntervals));
  }
  if (!(interval_s >= 1e-3 && interval_s <= 86400)) {
    return absl::InvalidArgumentError(
        absl::StrCat("an interval of ", interval_s, " s, allowed: 0.001 to 86400"));
  }
  bool any = false;
  for (const double rate : mbit) {
    if (!(rate >= 0 && rate <= kMaxMbit)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a link rate of ", rate, " Mbit/s, allowed: 0..", kMaxMbit));
    }
    any = any || rate > 0;
  }
  if (!any) return absl::InvalidArgumentError("all rates of the trace are 0");
  RateTrace trace;
  trace.mbit_ = std::move(mbit);
  trace.interval_s_ = interval_s;
  return trace;
}

absl::StatusOr<RateTrace> RateTrace::Parse(const std::string& text, const std::string& name) {
  std::istringstream in(text);
  std::vector<double> rates;
  double interval_s = 1;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    line.resize(std::min(line.size(), line.find('#')));
    absl::string_view rest = absl::StripAsciiWhitespace(line);
    if (rest.empty()) continue;
    const bool interval = absl::ConsumePrefix(&rest, "interval ");
    double value;
    if (!absl::SimpleAtod(rest, &value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ":", number, ": expected Mbit/s or \"interval SECONDS\", got \"", rest, "\""));
    }
    if (interval)
      interval_s = value;
    else
      rates.push_back(value);
    if (rates.size() > kMaxIntervals) break;
  }
  absl::StatusOr<RateTrace> trace = Intervals(std::move(rates), interval_s);
  if (!trace.ok())
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", trace.status().message()));
  return trace;
}

double RateTrace::At(double time_s) const {
  if (unlimited()) return std::numeric_limits<double>::infinity();
  if (mbit_.size() == 1) return mbit_[0];
  const double index = std::floor(std::max(0.0, time_s) / interval_s_);
  return mbit_[static_cast<size_t>(std::fmod(index, static_cast<double>(mbit_.size())))];
}

double RateTrace::mean_mbit() const {
  if (unlimited()) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (const double rate : mbit_) sum += rate;
  return sum / static_cast<double>(mbit_.size());
}

double RateTrace::FinishTime(double start_s, uint64_t bytes) const {
  if (unlimited()) return start_s;
  double left = static_cast<double>(bytes) * 8e-6;  // Mbit
  if (mbit_.size() == 1) return start_s + left / mbit_[0];
  double now = start_s;
  // Whole rounds of the trace at once, then interval by interval.
  const double round_s = interval_s_ * static_cast<double>(mbit_.size());
  const double round_mbit = mean_mbit() * round_s;
  const double rounds = std::floor(left / round_mbit);
  now += rounds * round_s;
  left -= rounds * round_mbit;
  while (left > 1e-12) {
    const double end = (std::floor(now / interval_s_ + 1e-9) + 1) * interval_s_;
    const double can = At(now + 1e-9 * interval_s_) * (end - now);
    if (can >= left) return now + left / At(now + 1e-9 * interval_s_);
    left -= can;
    now = end;
  }
  return now;
}

double TokenBucket::Send(double now_s, uint64_t bytes) {
  free_s_ = origin_s_ + rate_.FinishTime(std::max(now_s, free_s_) - origin_s_, bytes);
  return free_s_;
}

void TokenBucket::SetRate(RateTrace rate, double now_s) {
  rate_ = std::move(rate);
  origin_s_ = now_s;
  free_s_ = std::min(free_s_, now_s);
}

}  // namespace sparkv
