#include "edge/load/rate_curve.h"

#include <algorithm>
#include <limits>

namespace sparkv {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

double RateCurve::At(double time_s) const {
  double rate = 0;
  for (const auto& [since, value] : pieces_) {
    if (since > time_s) break;
    rate = value;
  }
  return rate;
}

double RateCurve::NextChange(double time_s) const {
  for (const auto& piece : pieces_) {
    if (piece.first > time_s) return piece.first;
  }
  return kNever;
}

double RateCurve::Amount(double from_s, double to_s) const {
  double amount = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const double end = i + 1 < pieces_.size() ? pieces_[i + 1].first : kNever;
    const double low = std::max(from_s, pieces_[i].first), high = std::min(to_s, end);
    if (high > low) amount += (high - low) * pieces_[i].second;
  }
  return amount;
}

double RateCurve::FinishTime(double from_s, double amount) const {
  if (amount <= 0) return from_s;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const double end = i + 1 < pieces_.size() ? pieces_[i + 1].first : kNever;
    if (end <= from_s) continue;
    const double rate = pieces_[i].second;
    if (rate > 0 && (end - from_s) * rate >= amount) return from_s + amount / rate;
    if (end == kNever) return kNever;
    amount -= (end - from_s) * std::max(0.0, rate);
    from_s = end;
  }
  return kNever;
}

}  // namespace sparkv
