#include "edge/cli/output_path.h"

#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace sparkv::cli {

absl::Status CheckOutputPath(const std::string& option, const std::string& path,
                             const std::vector<std::string>& others) {
  namespace fs = std::filesystem;
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": got '", path, "', ", why));
  };
  if (path.empty()) return absl::InvalidArgumentError(absl::StrCat(option, ": the name is empty"));
  std::error_code error;
  if (fs::is_directory(path, error)) return refuse("which is a folder");
  fs::path folder = fs::path(path).parent_path();
  if (folder.empty()) folder = ".";
  if (!fs::is_directory(folder, error)) return refuse("whose folder does not exist");
  if (::access(folder.c_str(), W_OK) != 0) return refuse("whose folder cannot be written to");
  for (const std::string& other : others) {
    const bool same = fs::exists(path, error) && fs::exists(other, error)
                          ? fs::equivalent(path, other, error)
                          : fs::weakly_canonical(path, error) == fs::weakly_canonical(other, error);
    if (same) return refuse(absl::StrCat("which would overwrite '", other, "'"));
  }
  return absl::OkStatus();
}

}  // namespace sparkv::cli
