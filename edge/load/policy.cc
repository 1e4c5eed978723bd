#include "edge/load/policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sparkv {

absl::StatusOr<std::unique_ptr<LoadPolicy>> MakePolicy(const std::string& name) {
  if (name == "sparkv") return MakeSparkvPolicy();
  if (name == "stream") return MakeStreamPolicy();
  if (name == "local") return MakeLocalPolicy();
  if (name == "cake") return MakeCakePolicy();
  return absl::InvalidArgumentError(
      absl::StrCat("policy \"", name, "\" is unknown; allowed: sparkv, stream, local, cake"));
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
