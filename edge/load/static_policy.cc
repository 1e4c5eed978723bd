// Depths that stay as they are, whatever the link and the device do: given ones, or those of
// sparkv's first plan.
#include <utility>

#include "edge/load/policy.h"

namespace sparkv {
namespace {

class GivenPolicy final : public LoadPolicy {
 public:
  explicit GivenPolicy(std::vector<uint32_t> depth) : depth_(std::move(depth)) {}
  const char* name() const override { return "given"; }
  LoadPlan Plan(const LoadProblem& problem) override {
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

class StaticPolicy final : public LoadPolicy {
 public:
  const char* name() const override { return "static"; }
  LoadPlan Plan(const LoadProblem& problem) override {
    LoadPlan plan = MakeSparkvPolicy()->Plan(problem);
    plan.policy = name();
    return plan;
  }
};

}  // namespace

std::unique_ptr<LoadPolicy> MakeGivenPolicy(std::vector<uint32_t> depth) {
  return std::make_unique<GivenPolicy>(std::move(depth));
}
std::unique_ptr<LoadPolicy> MakeStaticPolicy() { return std::make_unique<StaticPolicy>(); }

}  // namespace sparkv
