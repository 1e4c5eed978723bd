// Cake (Jin et al. 2024): compute from the first column on, stream from the last column back, until
// they meet. Each block goes to whichever side reaches it first; within a column the stream goes
// from the top layer down, since compute comes from below. As published, the query starts when
// everything is there. Where a column has to come whole, the stream brings it from the bottom up: blocks are
// finished in that order.
#include "edge/load/policy.h"

namespace sparkv {
namespace {

class CakePolicy final : public LoadPolicy {
 public:
  explicit CakePolicy(bool pipelined) : pipelined_(pipelined) {}
  const char* name() const override { return "cake"; }
  LoadPlan Plan(const LoadProblem& problem) override {
    LoadPlan plan;
    plan.policy = name();
    plan.depth.assign(problem.columns(), problem.layers);
    for (uint32_t t = problem.columns(); t-- > 0;) {
      const uint32_t least = problem.least_depth();
      for (uint32_t i = least; i < problem.layers; ++i) {
        plan.order.push_back({t, problem.whole_columns ? i : problem.layers - 1 + least - i});
      }
    }
    plan.pipelined_query = pipelined_;
    return plan;
  }

 private:
  const bool pipelined_;
};

}  // namespace

std::unique_ptr<LoadPolicy> MakeCakePolicy(bool pipelined) {
  return std::make_unique<CakePolicy>(pipelined);
}

}  // namespace sparkv
