// Everything comes over the link, layer by layer, so that the query can follow one layer behind.
#include "edge/load/policy.h"

namespace sparkv {
namespace {

class StreamPolicy final : public LoadPolicy {
 public:
  const char* name() const override { return "stream"; }
  LoadPlan Plan(const LoadProblem& problem) override {
    LoadPlan plan;
    plan.policy = name();
    plan.depth.assign(problem.columns(), problem.least_depth());
    plan.order = LayerMajorOrder(problem, plan.depth);
    plan.predicted_s = ProfileSeconds(problem, plan.depth);
    return plan;
  }
};

}  // namespace

std::unique_ptr<LoadPolicy> MakeStreamPolicy() { return std::make_unique<StreamPolicy>(); }

}  // namespace sparkv
