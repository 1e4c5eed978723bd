// Files and texts that people hand to the tool.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sparkv::cli {

// A whole file, or stdin for "-"; at most 64 MiB.
absl::StatusOr<std::string> ReadInput(const std::string& path);
// Numbers with anything else between them: "[1, 2]", one a line. InvalidArgument for none or one
// beyond int32.
absl::StatusOr<std::vector<int32_t>> ReadTokenFile(const std::string& path);
absl::StatusOr<std::vector<int32_t>> ParseTokenIds(const std::string& text);
// InvalidArgument "WHAT is not UTF-8: byte 0xE6 at offset 12". Requests carry text as UTF-8.
absl::Status CheckUtf8(const std::string& text, const std::string& what);

}  // namespace sparkv::cli
