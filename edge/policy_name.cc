#include "edge/policy_name.h"

#include "absl/strings/str_cat.h"

namespace sparkv {
namespace {

constexpr PolicyEntry kPolicies[] = {
    {v1::POLICY_SPARKV, "sparkv"}, {v1::POLICY_STREAM, "stream"},
    {v1::POLICY_LOCAL, "local"},   {v1::POLICY_CAKE, "cake"},
    {v1::POLICY_STATIC, "static"}, {v1::POLICY_SPARKV_PAPER, "sparkv-paper"}};

}  // namespace

std::span<const PolicyEntry> Policies() { return kPolicies; }

std::string PolicyName(v1::Policy policy) {
  for (const PolicyEntry& entry : kPolicies) {
    if (entry.policy == policy) return entry.name;
  }
  return "unspecified";
}

std::optional<v1::Policy> PolicyOfName(std::string_view name) {
  for (const PolicyEntry& entry : kPolicies) {
    if (entry.name == name) return entry.policy;
  }
  return std::nullopt;
}

std::vector<std::string> AllPolicyNames() {
  std::vector<std::string> names;
  for (const PolicyEntry& entry : kPolicies) names.emplace_back(entry.name);
  return names;
}

std::string PolicyNames() {
  std::string names;
  const size_t count = std::size(kPolicies);
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppend(&names, i == 0 ? "" : i + 1 < count ? ", " : " or ", kPolicies[i].name);
  }
  return names;
}

}  // namespace sparkv
