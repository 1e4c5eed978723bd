#include "edge/load/policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sparkv {
namespace {

struct Maker {
  const char* name;
  std::unique_ptr<LoadPolicy> (*make)();
};
constexpr Maker kMakers[] = {{"sparkv", MakeSparkvPolicy},
                             {"sparkv-paper", MakeSparkvPaperPolicy},
                             {"cake", [] { return MakeCakePolicy(); }},
                             {"stream", MakeStreamPolicy},
                             {"local", MakeLocalPolicy},
                             {"static", MakeStaticPolicy}};

}  // namespace

std::optional<BlockRef> LoadPolicy::NextBlock(const LoadView& view, const LoadPlan& plan) {
  // Blocks that are here or taken never come back, but for failures, which are computed.
  while (first_ < plan.order.size() &&
         !view.state.Wanted(plan.order[first_].column, plan.order[first_].layer))
    ++first_;
  for (size_t i = first_; i < plan.order.size(); ++i) {
    if (view.Orderable(plan.order[i].column, plan.order[i].layer)) return plan.order[i];
  }
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<LoadPolicy>> MakePolicy(std::string_view name) {
  std::string allowed;
  for (const auto& [known, make] : kMakers) {
    if (known == name) return make();
    absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", known);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("policy \"", std::string(name), "\" is unknown; allowed: ", allowed));
}

std::vector<BlockRef> LayerMajorOrder(const LoadProblem& problem,
                                      const std::vector<uint32_t>& depth) {
  std::vector<BlockRef> order;
  for (uint32_t l = 0; l < problem.layers; ++l) {
    for (uint32_t t = 0; t < problem.columns(); ++t) {
      if (l >= std::max(depth[t], problem.least_depth())) order.push_back({t, l});
    }
  }
  return order;
}

}  // namespace sparkv
