// Files and texts that people hand to the tool.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sparkv::cli {

// A whole file, or stdin for "-"; at most 16 MiB.
absl::StatusOr<std::string> ReadInput(const std::string& path);
// The same, and InvalidArgument "doc.txt is not UTF-8: byte 0xE6 at offset 12".
absl::StatusOr<std::string> ReadText(const std::string& path);
// Numbers with blanks, line breaks or commas between them, in brackets or not: "[1, 2]", one a
// line. InvalidArgument for none, one beyond int32 or anything else.
absl::StatusOr<std::vector<int32_t>> ReadTokenFile(const std::string& path);
absl::StatusOr<std::vector<int32_t>> ParseTokenIds(const std::string& text);

}  // namespace sparkv::cli
