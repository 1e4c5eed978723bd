// Given depths, for tests and experiments.
#include <utility>

#include "edge/load/policy.h"

namespace sparkv {
namespace {

class StaticPolicy final : public LoadPolicy {
 public:
  explicit StaticPolicy(std::vector<uint32_t> depth) : depth_(std::move(depth)) {}
  const char* name() const override { return "static"; }
  LoadPlan Plan(const LoadProblem& problem) const override {
    LoadPlan plan;
    plan.policy = name();
    plan.depth = depth_;
    plan.depth.resize(problem.columns(), 0);
    FitDepths(problem, &plan.depth);
    plan.order = LayerMajorOrder(problem, plan.depth);
    return plan;
  }

 private:
  std::vector<uint32_t> depth_;
};

}  // namespace

std::unique_ptr<LoadPolicy> MakeStaticPolicy(std::vector<uint32_t> depth) {
  return std::make_unique<StaticPolicy>(std::move(depth));
}

}  // namespace sparkv
