// Names of the loading policies that requests and configuration use.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sparkv/v1/edge.pb.h"

namespace sparkv {

struct PolicyEntry {
  v1::Policy policy;
  const char* name;
};

// All policies that can be asked for.
std::span<const PolicyEntry> Policies();

// "unspecified" for what is none of them.
std::string PolicyName(v1::Policy policy);
// nullopt: no policy has this name.
std::optional<v1::Policy> PolicyOfName(std::string_view name);
std::vector<std::string> AllPolicyNames();
// "sparkv, stream, ... or static", for help and errors.
std::string PolicyNames();

}  // namespace sparkv
