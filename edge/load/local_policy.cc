// Everything is computed here; the link is not used.
#include "edge/load/policy.h"

namespace sparkv {
namespace {

class LocalPolicy final : public LoadPolicy {
 public:
  const char* name() const override { return "local"; }
  LoadPlan Plan(const LoadProblem& problem) override {
    LoadPlan plan;
    plan.policy = name();
    plan.depth.assign(problem.columns(), problem.layers);
    for (uint32_t t = 0; t < problem.columns(); ++t)
      plan.predicted_s += PrefixSeconds(problem, t, problem.layers);
    plan.predicted_s += problem.layers * problem.QuerySeconds();
    plan.lower_bound_s = plan.predicted_s;
    return plan;
  }
};

}  // namespace

std::unique_ptr<LoadPolicy> MakeLocalPolicy() { return std::make_unique<LocalPolicy>(); }

}  // namespace sparkv
