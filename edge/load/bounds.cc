#include "edge/load/bounds.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

namespace sparkv {
namespace {

struct Step {
  double seconds, bytes;
};

// The chain of steps by falling bytes per second, from the least that any plan computes. A column's
// computed layers may have holes that are streamed and passed through, so for each top layer the
// dearest blocks below are counted as computed, whichever they are.
class Chain {
 public:
  explicit Chain(const LoadProblem& problem) {
    for (uint32_t t = 0; t < problem.columns(); ++t) AddColumn(problem, t);
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
  void AddColumn(const LoadProblem& problem, uint32_t t) {
    const uint32_t least = problem.least_depth();
    const double project = problem.ProjectSeconds(t), final_seconds = problem.FinalSeconds(t);
    std::vector<Step> points{{0, 0}};  // seconds and bytes against streaming all but `least` layers
    std::vector<double> bytes;         // of layers [least, top], falling
    double below = 0;                  // ATTN of layers [0, top)
    for (uint32_t top = 0; top < problem.layers; ++top) {
      if (top > 0) below += problem.AttendSeconds(t, top - 1);
      if (top < least) continue;
      const auto block = static_cast<double>(problem.bytes(t, top));
      bytes.insert(std::upper_bound(bytes.begin(), bytes.end(), block, std::greater<>()), block);
      double seconds = below, saved = 0;
      for (const double b : bytes) {
        seconds += project - final_seconds;
        saved += b;
        points.push_back({seconds, saved});
      }
    }
    std::sort(points.begin(), points.end(), [](const Step& a, const Step& b) {
      return a.seconds != b.seconds ? a.seconds < b.seconds : a.bytes > b.bytes;
    });
    std::vector<Step> hull;
    for (const Step& point : points) {
      if (!hull.empty() && point.bytes <= hull.back().bytes) continue;
      while (hull.size() > 1) {
        const Step &a = hull[hull.size() - 2], &m = hull.back();
        if ((m.bytes - a.bytes) * (point.seconds - m.seconds) >=
            (point.bytes - m.bytes) * (m.seconds - a.seconds))
          break;
        hull.pop_back();
      }
      hull.push_back(point);
    }
    for (const double b : bytes) left_ += b;
    left_ -= hull.front().bytes;
    computed_ += least * project + hull.front().seconds + (problem.layers - least) * final_seconds;
    for (size_t i = 1; i < hull.size(); ++i)
      steps_.push_back({hull[i].seconds - hull[i - 1].seconds, hull[i].bytes - hull[i - 1].bytes});
  }

  double computed_ = 0;
  double left_ = 0;
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
    const double bytes = std::max(0.0, link.Amount(problem.rtt_s / 2, low - problem.rtt_s / 2));
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
