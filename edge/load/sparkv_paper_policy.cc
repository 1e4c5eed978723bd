// SparKV as published (IEEE IoT-J 2026, section IV), made executable: blocks are taken greedily in
// stages of Dt seconds, by
//   w_s(c) = alpha / t_stream(c) + beta * sum over A_s(c) of 1 / t_comp(c')
//   w_c(c) = alpha / t_comp(c)   + beta * sum over A_c(c) of 1 / t_comp(c')
// where A(c) are the blocks that become ready to be computed by c. A block is ready when its column
// was computed in the layer below, and the columns before it are loaded in its own layer; the first
// layer needs the latter only, the last one the former only. What streaming makes ready can be
// computed from the next stage on. Blocks are (column, layer) with all heads, since the hidden rows
// of a layer mix them; computed layers of a column form a prefix by the rule above.
//
// At run time, with thresholds that the paper leaves open: a device slower than 1.15 times the
// plan gives the top layer of its last columns to an idle link; a link slower than .85 times gives
// the blocks that compute can do next to the device; at most a tenth of a stage's blocks each
// stage, at least one.
#include <algorithm>
#include <cmath>
#include <vector>

#include "edge/load/policy.h"

namespace sparkv {
namespace {

constexpr double kAlpha = 1, kBeta = 1;  // "equal weights"
constexpr double kSlowDevice = 1.15, kSlowLink = 0.85;

class Greedy {
 public:
  explicit Greedy(const LoadProblem& problem)
      : p_(problem),
        computed_(problem.columns(), problem.least_depth()),
        loaded_(size_t{problem.columns()} * problem.layers, false) {
    double stream = 0, compute = 0;
    for (uint32_t t = 0; t < p_.columns(); ++t) {
      for (uint32_t l = 0; l < p_.least_depth(); ++l) loaded_[Index(t, l)] = true;
      for (uint32_t l = 0; l < p_.layers; ++l) {
        stream += StreamSeconds(t, l);
        compute += ComputeSeconds(t, l);
      }
    }
    stage_s_ = std::clamp(0.05 * std::min(stream, compute), 2e-3, 0.1);
  }

  double stage_s() const { return stage_s_; }

  void Run(LoadPlan* plan) {
    const size_t all = size_t{p_.columns()} * (p_.layers - p_.least_depth());
    size_t assigned = 0;
    while (assigned < all) {
      double budget = stage_s_;
      for (bool first = true; assigned < all && (budget > 0 || first); first = false) {
        // In each stage compute comes first: what the stream makes ready counts from the next on.
        std::optional<BlockRef> best;
        double weight = -1;
        for (uint32_t t = 0; t < p_.columns(); ++t) {
          const uint32_t l = computed_[t];
          if (l >= p_.layers || !Ready(t, l)) continue;
          const double w = kAlpha / ComputeSeconds(t, l) + kBeta * Unlocked(t, l, true);
          if (w > weight) {
            weight = w;
            best = BlockRef{t, l};
          }
        }
        if (!best.has_value()) break;
        loaded_[Index(best->column, best->layer)] = true;
        computed_[best->column] = best->layer + 1;
        budget -= ComputeSeconds(best->column, best->layer);
        ++assigned;
      }
      if (p_.link_bytes_per_s <= 0 && assigned < all) continue;  // everything is computed
      budget = stage_s_;
      struct Weighted {
        double weight;
        BlockRef block;
      };
      std::vector<Weighted> queue;
      for (uint32_t t = 0; t < p_.columns(); ++t) {
        for (uint32_t l = p_.least_depth(); l < p_.layers; ++l) {
          if (loaded_[Index(t, l)] || p_.bytes(t, l) == 0) continue;
          queue.push_back(
              {kAlpha / StreamSeconds(t, l) + kBeta * Unlocked(t, l, false), {t, l}});
        }
      }
      std::stable_sort(queue.begin(), queue.end(),
                       [](const Weighted& a, const Weighted& b) { return a.weight > b.weight; });
      for (size_t i = 0; i < queue.size() && (budget > 0 || i == 0); ++i) {
        const BlockRef& b = queue[i].block;
        loaded_[Index(b.column, b.layer)] = true;
        plan->order.push_back(b);
        budget -= StreamSeconds(b.column, b.layer);
        ++assigned;
      }
    }
    plan->depth = computed_;
  }

 private:
  size_t Index(uint32_t t, uint32_t l) const { return size_t{t} * p_.layers + l; }
  double StreamSeconds(uint32_t t, uint32_t l) const {
    const auto bytes = static_cast<double>(p_.bytes(t, l));
    const double rate = p_.link_bytes_per_s;
    return std::max(1e-9, (rate > 0 ? bytes / rate : 1e9) + p_.DecodeSeconds(bytes));
  }
  double ComputeSeconds(uint32_t t, uint32_t l) const {
    return std::max(1e-9, p_.ProjectSeconds(t) + (l + 1 < p_.layers ? p_.AttendSeconds(t, l) : 0));
  }
  // (t, l) can be computed: its column was, below, and the columns before it are loaded.
  bool Ready(uint32_t t, uint32_t l) const {
    if (computed_[t] != l || loaded_[Index(t, l)]) return false;
    return l + 1 == p_.layers || Before(t, l) == t;
  }
  // Columns from 0 on that are loaded in layer l, up to t.
  uint32_t Before(uint32_t t, uint32_t l) const {
    uint32_t n = 0;
    while (n < t && loaded_[Index(n, l)]) ++n;
    return n;
  }
  // Sum of 1 / t_comp over what (t, l) makes ready when it is loaded, by compute or by the stream.
  double Unlocked(uint32_t t, uint32_t l, bool by_compute) const {
    double sum = 0;
    if (by_compute && l + 1 < p_.layers && !loaded_[Index(t, l + 1)] &&
        (l + 2 == p_.layers || Before(t, l + 1) == t))
      sum += 1 / ComputeSeconds(t, l + 1);
    if (l + 1 == p_.layers || Before(t, l) != t) return sum;
    for (uint32_t later = t + 1; later < p_.columns(); ++later) {
      if (loaded_[Index(later, l)]) continue;
      if (computed_[later] == l) sum += 1 / ComputeSeconds(later, l);
      break;
    }
    return sum;
  }

  const LoadProblem& p_;
  double stage_s_ = 0;
  std::vector<uint32_t> computed_;  // [columns] layers
  std::vector<bool> loaded_;        // [columns][layers]
};

class SparkvPaperPolicy final : public LoadPolicy {
 public:
  const char* name() const override { return "sparkv-paper"; }

  LoadPlan Plan(const LoadProblem& problem) override {
    LoadPlan plan;
    plan.policy = name();
    plan.pipelined_query = false;
    Greedy greedy(problem);
    greedy.Run(&plan);
    if (problem.whole_columns) {
      FitDepths(problem, &plan.depth);
      plan.order = LayerMajorOrder(problem, plan.depth);
    }
    plan.predicted_s = ProfileSeconds(problem, plan.depth);
    stage_s_ = greedy.stage_s();
    planned_rate_ = problem.link_bytes_per_s;
    planned_slowdown_ = problem.slowdown;
    return plan;
  }

  void Replan(const LoadView& view, LoadPlan* plan) override {
    const LoadProblem& p = view.problem;
    if (view.now_s < next_stage_s_ || p.whole_columns) return;
    next_stage_s_ = view.now_s + std::max(stage_s_, 0.1);
    const double period = std::max(stage_s_, 0.1);
    const double block_s = p.ProjectSeconds(0) + p.AttendSeconds(0, 0);
    const int most = std::max(1, static_cast<int>(0.1 * period / std::max(1e-6, block_s)));
    if (p.slowdown > kSlowDevice * planned_slowdown_ && !StreamHasMore(view)) {
      for (int i = 0; i < most; ++i) ToStream(view, plan);
    }
    if (p.link_bytes_per_s < kSlowLink * planned_rate_) {
      for (int i = 0; i < most; ++i) ToCompute(view, plan);
    }
  }

 private:
  static bool StreamHasMore(const LoadView& view) {
    for (uint32_t t = 0; t < view.problem.columns(); ++t) {
      for (uint32_t l = view.state.depth(t); l < view.problem.layers; ++l) {
        if (view.Orderable(t, l)) return true;
      }
    }
    return false;
  }
  // The top layer that the last column still has to compute.
  static void ToStream(const LoadView& view, LoadPlan* plan) {
    for (uint32_t t = view.problem.columns(); t-- > 0;) {
      const uint32_t depth = plan->depth[t];
      if (depth <= view.HiddenDepth(t) + 1 || !view.Orderable(t, depth - 1)) continue;
      --plan->depth[t];
      plan->order.push_back({t, depth - 1});
      return;
    }
  }
  // The next layer of the first column that can be computed without waiting for the link.
  static void ToCompute(const LoadView& view, LoadPlan* plan) {
    for (uint32_t t = 0; t < view.problem.columns(); ++t) {
      const uint32_t depth = plan->depth[t];
      if (depth >= view.problem.layers || !view.state.Wanted(t, depth)) continue;
      if (depth > view.HiddenDepth(t) + 1) continue;
      if (depth > 0 && !view.state.AttendReady(t, depth - 1)) continue;
      ++plan->depth[t];
      return;
    }
  }

  double stage_s_ = 0, next_stage_s_ = 0;
  double planned_rate_ = 0, planned_slowdown_ = 1;
};

}  // namespace

std::unique_ptr<LoadPolicy> MakeSparkvPaperPolicy() {
  return std::make_unique<SparkvPaperPolicy>();
}

}  // namespace sparkv
