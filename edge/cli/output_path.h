// Where a command that takes minutes will write: checked before it begins.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sparkv::cli {

// InvalidArgument, naming the option, unless `path` may become a file: a name in a folder that
// exists and can be written to, no folder itself, and none of `others`, the files that the command
// reads or writes besides.
absl::Status CheckOutputPath(const std::string& option, const std::string& path,
                             const std::vector<std::string>& others);

}  // namespace sparkv::cli
