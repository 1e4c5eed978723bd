// Cake (Jin et al. 2024): compute from the first column on, stream from the last column back, until
// they meet. Each block goes to whichever side reaches it first; within a column the stream goes
// from the top layer down, since compute comes from below. The query starts when everything is
// there.
#include "edge/load/policy.h"

namespace sparkv {
namespace {

class CakePolicy final : public LoadPolicy {
 public:
  const char* name() const override { return "cake"; }
  LoadPlan Plan(const LoadProblem& problem) const override {
    LoadPlan plan;
    plan.policy = name();
    plan.depth.assign(problem.columns(), problem.layers);
    for (uint32_t t = problem.columns(); t-- > 0;) {
      for (uint32_t l = problem.layers; l-- > 0;) plan.order.push_back({t, l});
    }
    plan.pipelined_query = false;
    return plan;
  }
};

}  // namespace

std::unique_ptr<LoadPolicy> MakeCakePolicy() { return std::make_unique<CakePolicy>(); }

}  // namespace sparkv
