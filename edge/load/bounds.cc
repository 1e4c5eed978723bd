#include "edge/load/bounds.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace sparkv {
namespace {

struct Step {
  double seconds, bytes;
};

// The chain of steps by falling bytes per second, from the least that any plan computes.
class Chain {
 public:
  explicit Chain(const LoadProblem& problem) {
    const ColumnTable columns(problem);
    for (uint32_t t = 0; t < problem.columns(); ++t) {
      std::vector<Step> points{{0, 0}};  // hull, from least_depth on
      double bytes = 0;
      const double base = columns(t, problem.least_depth());
      for (uint32_t l = problem.least_depth(); l < problem.layers; ++l) {
        bytes += static_cast<double>(problem.bytes(t, l));
        const Step point{columns(t, l + 1) - base, bytes};
        while (points.size() > 1) {
          const Step &a = points[points.size() - 2], &m = points.back();
          // m lies below the line from a to the new point.
          if ((m.bytes - a.bytes) * (point.seconds - m.seconds) >=
              (point.bytes - m.bytes) * (m.seconds - a.seconds))
            break;
          points.pop_back();
        }
        // Depths that cost less than others below them (PROJ cheaper than FINAL) begin the hull.
        if (point.seconds <= points.front().seconds && points.size() == 1) {
          computed_ += point.seconds - points.front().seconds;
          bytes_saved_ += point.bytes - points.front().bytes;
          points.front() = point;
          continue;
        }
        points.push_back(point);
      }
      computed_ += base;
      left_ += bytes;
      for (size_t i = 1; i < points.size(); ++i)
        steps_.push_back({points[i].seconds - points[i - 1].seconds,
                          points[i].bytes - points[i - 1].bytes});
    }
    left_ -= bytes_saved_;
    std::sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) {
      return a.bytes * b.seconds > b.bytes * a.seconds;
    });
  }

  // The least seconds of compute, QUERY apart, of a plan that streams at most so many bytes; and
  // those bytes.
  Step At(double most_bytes) const {
    double seconds = computed_, left = left_;
    for (const Step& step : steps_) {
      if (left <= most_bytes) break;
      const double share = step.bytes > 0 ? std::min(1.0, (left - most_bytes) / step.bytes) : 1;
      seconds += share * step.seconds;
      left -= share * step.bytes;
    }
    return {seconds, left};
  }

 private:
  double computed_ = 0;
  double left_ = 0;
  double bytes_saved_ = 0;
  std::vector<Step> steps_;
};

}  // namespace

double LowerBound(const LoadProblem& problem) {
  const double slow = problem.slowdown > 0 ? problem.slowdown : 1;
  return LowerBound(problem, RateCurve(problem.link_bytes_per_s), RateCurve(1 / slow));
}

double LowerBound(const LoadProblem& given, const RateCurve& link, const RateCurve& speed) {
  LoadProblem problem = given;
  problem.slowdown = 1;
  const Chain chain(problem);
  const double query = problem.QuerySeconds();
  // Whether a load may end at `end`: the bytes that the link brings before the last QUERY leave
  // compute enough time for the rest.
  const auto feasible = [&](double end) {
    // The last QUERY follows the last byte, unless nothing is streamed.
    double low = 0, high = end;
    for (int i = 0; i < 60; ++i) {  // the latest time at which the last QUERY can begin
      const double mid = (low + high) / 2;
      (speed.Amount(mid, end) >= query ? low : high) = mid;
    }
    const double bytes = std::max(0.0, link.Amount(0, low - problem.rtt_s));
    const Step plan = chain.At(bytes);
    if (plan.bytes > bytes * (1 + 1e-12) + 1e-6) return false;
    return plan.seconds + problem.layers * query + problem.DecodeCharge(plan.bytes) <=
           speed.Amount(0, end) * (1 + 1e-12);
  };
  double low = 0, high = 1;
  while (!feasible(high)) {
    low = high;
    high *= 2;
    if (high > 1e7) return std::numeric_limits<double>::infinity();
  }
  for (int i = 0; i < 60; ++i) {
    const double mid = (low + high) / 2;
    (feasible(mid) ? high : low) = mid;
  }
  return high;
}

}  // namespace sparkv
