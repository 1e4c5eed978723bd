#include "edge/cli/input.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/base/utf8.h"
#include "common/rpc/wire.h"

namespace sparkv::cli {
namespace {

constexpr size_t kMaxBytes = kMaxRequestTextBytes;

}  // namespace

absl::StatusOr<std::string> ReadInput(const std::string& path) {
  if (path != "-") {
    absl::StatusOr<std::string> text = ReadFile(path, kMaxBytes);
    // Of a file here: NotFound stays, the rest is the caller's to put right.
    if (!text.ok() && !absl::IsNotFound(text.status()))
      return absl::InvalidArgumentError(text.status().message());
    return text;
  }
  // Where stdin was closed, a library's event counter may have its number: no type at all.
  struct stat info {};
  if (::fstat(STDIN_FILENO, &info) != 0 || (info.st_mode & S_IFMT) == 0)
    return absl::InvalidArgumentError("stdin is closed");
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (n == 0) return text;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "stdin");
    if (text.size() + static_cast<size_t>(n) > kMaxBytes) {
      return absl::InvalidArgumentError(absl::StrCat("stdin: more than ", kMaxBytes, " bytes"));
    }
    text.append(buffer, static_cast<size_t>(n));
  }
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadInput(path));
  RETURN_IF_ERROR(CheckUtf8(text, path == "-" ? "stdin" : path));
  return text;
}

absl::StatusOr<std::vector<int32_t>> ParseTokenIds(const std::string& text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = std::min(text.find_first_not_of(kBlanks), text.size());
  size_t end = text.find_last_not_of(kBlanks) + 1;  // npos + 1 is 0
  size_t i = first;
  if (first < end && text[first] == '[' && text[end - 1] == ']') {
    ++i;
    --end;
  }
  std::vector<int32_t> ids;
  while (true) {
    while (i < end && (kBlanks.find(text[i]) != std::string_view::npos || text[i] == ',')) ++i;
    if (i >= end) break;
    const size_t begin = i;
    uint64_t value = 0;
    for (; i < end && text[i] >= '0' && text[i] <= '9'; ++i) {
      value = value * 10 + static_cast<uint64_t>(text[i] - '0');
      if (value > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
        return absl::InvalidArgumentError(
            absl::StrCat("token ids: the number at offset ", begin, " is too large"));
      }
    }
    if (i == begin) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "token ids: got byte 0x%02X at offset %d, expected a number, a comma or a blank",
          static_cast<uint8_t>(text[i]), i));
    }
    ids.push_back(static_cast<int32_t>(value));
  }
  if (ids.empty()) return absl::InvalidArgumentError("token ids: there are none");
  return ids;
}

absl::StatusOr<std::vector<int32_t>> ReadTokenFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadInput(path));
  return ParseTokenIds(text);
}

}  // namespace sparkv::cli
