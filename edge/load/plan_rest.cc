#include "edge/load/plan_rest.h"

#include <algorithm>
#include <limits>

namespace sparkv {
namespace {

struct Step {
  double worth;  // bytes per second
  uint32_t column;
  uint32_t depth;  // reached by it
  double seconds;
  double bytes;
};

double Worth(double bytes, double seconds) {
  return seconds > 0 ? bytes / seconds : std::numeric_limits<double>::infinity();
}

// Appends the steps of column t. What is under way is a gap like any other: should the link bring
// no more of it, compute must be able to.
void AppendSteps(const LoadView& view, uint32_t t, std::vector<Step>* steps) {
  const LoadProblem& p = view.problem;
  const LoadState& state = view.state;
  const uint32_t hidden = view.HiddenDepth(t);
  const double project = p.ProjectSeconds(t);
  const double final_seconds = state.rules().needs_final ? p.FinalSeconds(t) : 0;
  const bool whole = p.whole_columns;
  struct Point {  // all gaps up to a layer
    double seconds, bytes;
    uint32_t depth;
  };
  std::vector<Point> points{{0, 0, 0}};
  std::vector<size_t> hull{0};  // of points
  const auto worth = [&](size_t from, size_t to) {
    return Worth(points[to].bytes - points[from].bytes, points[to].seconds - points[from].seconds);
  };
  double below = 0;  // ATTN of layers [hidden, l)
  double seconds = 0, bytes = 0;
  for (uint32_t l = hidden; l < p.layers; ++l) {
    const BlockState block = state.block(t, l);
    // Where columns are whole, symbols above a computed block are lost, and computed as well.
    if (block == BlockState::kMissing || (whole && block == BlockState::kSymbols)) {
      seconds += project - final_seconds;
      bytes += block == BlockState::kMissing ? static_cast<double>(p.bytes(t, l)) : 0;
      points.push_back({seconds + below, bytes, l + 1});
      const size_t last = points.size() - 1;
      while (hull.size() > 1 &&
             (whole || worth(hull[hull.size() - 2], hull.back()) < worth(hull.back(), last)))
        hull.pop_back();
      hull.push_back(last);
    }
    below += p.AttendSeconds(t, l);
  }
  // A stretch of the hull is taken gap by gap, all of them at its worth: that keeps the chain, and
  // a walk can stop inside. Whole columns are taken at once.
  for (size_t i = 1; i < hull.size(); ++i) {
    const double stretch = worth(hull[i - 1], hull[i]);
    for (size_t j = whole ? hull[i] : hull[i - 1] + 1, from = hull[i - 1]; j <= hull[i];
         from = j++) {
      steps->push_back({stretch, t, points[j].depth, points[j].seconds - points[from].seconds,
                        points[j].bytes - points[from].bytes});
    }
  }
}

}  // namespace

RestPlan PlanRest(const LoadView& view) {
  const LoadProblem& p = view.problem;
  const LoadState& state = view.state;
  const uint32_t columns = p.columns();
  RestPlan plan;
  plan.depth.assign(columns, 0);

  double bytes = 0;                      // still to come if nothing more is computed
  double compute = view.running_left_s;  // PROJ, ATTN and FINAL
  double largest = 0, final_seconds = 0;
  std::vector<Step> steps;
  for (uint32_t t = 0; t < columns; ++t) {
    if (state.column_complete(t)) continue;
    for (uint32_t l = 0; l < p.layers; ++l) {
      const BlockState block = state.block(t, l);
      const bool missing = block == BlockState::kMissing;
      if (missing && l >= p.least_depth()) {
        const auto b = static_cast<double>(p.bytes(t, l));
        if (!view.UnderWay(t, l)) bytes += b;
        largest = std::max(largest, b);
      }
      if (state.rules().needs_final && l >= p.least_depth() &&
          (missing || block == BlockState::kDecoding || block == BlockState::kSymbols)) {
        compute += p.FinalSeconds(t);
        final_seconds = std::max(final_seconds, p.FinalSeconds(t));
      }
    }
    AppendSteps(view, t, &steps);
  }
  bytes += view.under_way_bytes;
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.worth > b.worth; });

  const double query = p.QuerySeconds();
  const double queries = query * (p.layers - std::min(p.layers, state.query_layer()));
  const double rate = view.streaming ? p.link_bytes_per_s : 0;
  const double after =
      p.DecodeSeconds(largest) + final_seconds + query + (view.under_way_bytes > 0 ? 0 : p.rtt_s);
  const auto value = [&](double left, double work) {
    double link = 0;
    if (left > 0.5) {
      if (rate <= 0) return std::numeric_limits<double>::infinity();
      link = left / rate + after;
    }
    return std::max(link, work + queries + p.DecodeCharge(left));
  };
  double best = value(bytes, compute);
  size_t taken = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    bytes = std::max(0.0, bytes - steps[i].bytes);
    compute += steps[i].seconds;
    const double v = value(bytes, compute);
    // Steps that cost nothing, PROJ whose FINAL costs as much, are always taken.
    if (v < best || (v <= best && steps[i].seconds <= 0) || rate <= 0) {
      best = v;
      taken = i + 1;
    }
    if (rate > 0 && compute + queries > best && taken + 3 * p.layers < i) break;
  }
  for (size_t i = 0; i < taken; ++i) {
    plan.depth[steps[i].column] = std::max(plan.depth[steps[i].column], steps[i].depth);
  }
  plan.left_s = best;
  return plan;
}

}  // namespace sparkv
