// A rate over time, piecewise constant: of a link in bytes/s, of a device in parts of its speed.
#pragma once

#include <utility>
#include <vector>

namespace sparkv {

class RateCurve {
 public:
  RateCurve() = default;  // 0 for ever
  explicit RateCurve(double rate) : pieces_{{0, rate}} {}
  // (since second, rate) in ascending order; the first from 0 on. The last lasts for ever.
  explicit RateCurve(std::vector<std::pair<double, double>> pieces) : pieces_(std::move(pieces)) {}

  double At(double time_s) const;
  // What passes in [from, to].
  double Amount(double from_s, double to_s) const;
  // When `amount` that begins at from_s is through; infinite when it never is.
  double FinishTime(double from_s, double amount) const;
  // The next change after time_s; infinite: none.
  double NextChange(double time_s) const;

 private:
  std::vector<std::pair<double, double>> pieces_;
};

}  // namespace sparkv
