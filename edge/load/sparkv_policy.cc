// The D-profile plan: computed layers form a prefix of depth D_t in each column, the rest is
// streamed.
//
// Each further layer of a column takes dK seconds of compute and saves dB bytes of stream. The
// first one costs PROJ alone, any other also the ATTN below it, so a column's curve (K, B) is
// concave but for its cheap first step, and sorting all steps by dB/dK gives one chain that holds
// the best set for every ratio of link to device. The walk along it balances both sides:
//   v = max( rtt + R/r + one item's decode and FINAL + the last QUERY,
//            K + QUERY of all layers + decode of R + FINAL of the blocks in R )
// with R the bytes still streamed and r the link's rate. FINAL costs a block the same whatever its
// bytes, so it is counted in K: a step takes dK less the FINAL that it saves.
#include <algorithm>
#include <limits>

#include "edge/load/compute_choice.h"
#include "edge/load/depth_search.h"
#include "edge/load/link_choice.h"
#include "edge/load/plan_rest.h"
#include "edge/load/policy.h"

namespace sparkv {
namespace {

// Blocks are wanted by this share of the time that is planned, so that what comes late is not too
// late.
constexpr double kTarget = 0.99;

struct Step {
  uint32_t column;
  uint32_t layer;  // this step makes the depth layer + 1
  double seconds;  // dK
  double bytes;    // dB
  double worth() const {
    return seconds > 0 ? bytes / seconds : std::numeric_limits<double>::infinity();
  }
};

class SparkvPolicy final : public LoadPolicy {
 public:
  const char* name() const override { return "sparkv"; }
  LoadPlan Plan(const LoadProblem& problem) override;
  void Replan(const LoadView& view, LoadPlan* plan) override;
  std::optional<BlockRef> NextBlock(const LoadView& view, const LoadPlan& plan) override;
  std::optional<BlockRef> Steal(const LoadView& view, const LoadPlan& plan) override;

 private:
  std::vector<double> worth_;  // [columns]
  double target_s_ = 0;        // when blocks are wanted, in the load's time
};

// The steps of a column in ascending layers, above those that any plan computes, merged where a
// later one is worth more than an earlier one (a layer can't be taken before those below it): the
// upper concave hull. `merged` counts the layers of each. Where columns are computed whole there is
// one step.
void AppendHull(const LoadProblem& problem, const ColumnTable& columns, uint32_t t,
                std::vector<Step>* out) {
  std::vector<Step> hull;
  double before = columns(t, problem.least_depth());
  for (uint32_t l = problem.least_depth(); l < problem.layers; ++l) {
    const double seconds = columns(t, l + 1);
    Step step{t, l, seconds - before, static_cast<double>(problem.bytes(t, l))};
    before = seconds;
    while (!hull.empty() &&
           (hull.back().worth() < step.worth() || !problem.DepthAllowed(step.layer))) {
      step.seconds += hull.back().seconds;
      step.bytes += hull.back().bytes;
      hull.pop_back();
    }
    hull.push_back(step);
  }
  out->insert(out->end(), hull.begin(), hull.end());
}

// Moves single depths, never out of their falling order, while that makes the load shorter: the
// chain's steps can be several layers thick, and levelling gave some away. Returns the value
// reached.
double Refine(const LoadProblem& problem, const ColumnTable& column_seconds,
              const BusyTime& seconds, std::vector<uint32_t>* depth) {
  const uint32_t columns = problem.columns();
  double computed = 0;
  double left = 0;
  for (uint32_t t = 0; t < columns; ++t) {
    computed += column_seconds(t, (*depth)[t]);
    for (uint32_t l = (*depth)[t]; l < problem.layers; ++l)
      left += static_cast<double>(problem.bytes(t, l));
  }
  double best = seconds(computed, left);
  constexpr int kPasses = 8;
  for (int pass = 0; pass < kPasses; ++pass) {
    bool moved = false;
    for (uint32_t t = 0; t < columns; ++t) {
      const uint32_t most = t == 0 ? problem.layers : (*depth)[t - 1];
      const uint32_t least = t + 1 == columns ? 1 : std::max(1u, (*depth)[t + 1]);
      const double other_computed = computed - column_seconds(t, (*depth)[t]);
      double other_left = left;
      for (uint32_t l = (*depth)[t]; l < problem.layers; ++l)
        other_left -= static_cast<double>(problem.bytes(t, l));
      double own = 0;  // bytes of layers [d, layers)
      for (uint32_t d = problem.layers; d + 1 > least; --d) {
        if (d < problem.layers) own += static_cast<double>(problem.bytes(t, d));
        if (d > most || !problem.DepthAllowed(d)) continue;
        const double c = other_computed + column_seconds(t, d);
        const double v = seconds(c, other_left + own);
        if (v < best * (1 - 1e-9)) {
          best = v;
          (*depth)[t] = d;
          computed = c;
          left = other_left + own;
          moved = true;
        }
        if (d == 0) break;
      }
    }
    if (!moved) break;
  }
  return best;
}

LoadPlan SparkvPolicy::Plan(const LoadProblem& problem) {
  const ColumnTable columns(problem);
  LoadPlan plan;
  plan.policy = name();
    plan.depth.assign(problem.columns(), problem.least_depth());
  std::vector<Step> steps;
  double computed = 0;
  double left = 0;
  for (uint32_t t = 0; t < problem.columns(); ++t) {
    AppendHull(problem, columns, t, &steps);
    computed += columns(t, problem.least_depth());
    for (uint32_t l = problem.least_depth(); l < problem.layers; ++l) {
      left += static_cast<double>(problem.bytes(t, l));
    }
  }
  // Steps are in column order, so a stable sort keeps early columns first among equals.
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.worth() > b.worth(); });

  const double query = problem.QuerySeconds() * problem.layers;
  const bool linked = problem.link_bytes_per_s > 0;
  const BusyTime seconds(problem);

  double best = seconds(computed, left);
  double bound = best;
  size_t taken = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    // Between two steps both sides are linear: the crossing may lie inside (the bound's fractional
    // depth).
    const double before_link =
        left > 0 && linked ? problem.rtt_s + left / problem.link_bytes_per_s : 0;
    const double before_compute = computed + query + problem.DecodeCharge(left);
    computed += steps[i].seconds;
    left = std::max(0.0, left - steps[i].bytes);
    const double after_link = linked ? problem.rtt_s + left / problem.link_bytes_per_s : 0;
    const double after_compute = computed + query + problem.DecodeCharge(left);
    if (linked && before_link > before_compute && after_link <= after_compute) {
      const double gap = before_link - before_compute;
      const double closing = gap + (after_compute - after_link);
      const double share = closing > 0 ? gap / closing : 0;
      bound = std::min(bound, before_compute + share * (after_compute - before_compute));
    }
    const double v = seconds(computed, left);
    bound = std::min(bound, v);
    if (v < best) {
      best = v;
      taken = i + 1;
    }
  }
  for (size_t i = 0; i < taken; ++i) {
    plan.depth[steps[i].column] = std::max(plan.depth[steps[i].column], steps[i].layer + 1);
  }
  // Without a stream everything is computed whatever it costs.
  if (!linked) plan.depth.assign(problem.columns(), problem.layers);
  // D_t >= 1: the first layer needs no history.
  for (uint32_t& depth : plan.depth) depth = std::max(depth, 1u);
  // A deeper column behind a shallower one would wait for its K, V. Level them, once by lowering
  // and once by raising, and keep the better after refinement.
  std::vector<uint32_t> raised = plan.depth;
  for (uint32_t t = 1; t < problem.columns(); ++t)
    plan.depth[t] = std::min(plan.depth[t], plan.depth[t - 1]);
  for (uint32_t t = problem.columns() - 1; t-- > 0;) raised[t] = std::max(raised[t], raised[t + 1]);
  if (linked) {
    best = Refine(problem, columns, seconds, &plan.depth);
    const double other = Refine(problem, columns, seconds, &raised);
    if (other < best) {
      best = other;
      plan.depth = raised;
    }
    // With few blocks one more or less is much.
    if (BestDepthsFits(problem)) best = BestDepths(problem, seconds, &plan.depth);
  }
  plan.order = LayerMajorOrder(problem, plan.depth);
  plan.predicted_s = best;
  plan.lower_bound_s = bound;
  worth_ = ColumnWorth(problem);
  target_s_ = kTarget * best;
  return plan;
}

void SparkvPolicy::Replan(const LoadView& view, LoadPlan* plan) {
  RestPlan rest = PlanRest(view);
  plan->depth = std::move(rest.depth);
  plan->predicted_s = view.now_s + rest.left_s;
  target_s_ = view.now_s + kTarget * rest.left_s;
}

std::optional<BlockRef> SparkvPolicy::NextBlock(const LoadView& view, const LoadPlan& /*plan*/) {
  return ChooseBlock(view, worth_, target_s_);
}

std::optional<BlockRef> SparkvPolicy::Steal(const LoadView& view, const LoadPlan& /*plan*/) {
  return ChooseSteal(view);
}

}  // namespace

std::unique_ptr<LoadPolicy> MakeSparkvPolicy() { return std::make_unique<SparkvPolicy>(); }

}  // namespace sparkv
