#include "edge/cli/input.h"

#include <unistd.h>

#include <cerrno>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/file.h"
#include "common/base/status.h"

namespace sparkv::cli {
namespace {

constexpr size_t kMaxBytes = size_t{64} << 20;

// Bytes of the well-formed character at `i`, 0 for none (RFC 3629).
size_t CharacterBytes(const std::string& s, size_t i) {
  const auto at = [&](size_t k) { return k < s.size() ? static_cast<unsigned char>(s[k]) : 0; };
  const auto follows = [&](size_t k, int low = 0x80, int high = 0xBF) {
    return at(k) >= low && at(k) <= high;
  };
  const int c = at(i);
  if (c < 0x80) return 1;
  if (c >= 0xC2 && c <= 0xDF) return follows(i + 1) ? 2 : 0;
  if (c >= 0xE0 && c <= 0xEF) {
    return follows(i + 1, c == 0xE0 ? 0xA0 : 0x80, c == 0xED ? 0x9F : 0xBF) && follows(i + 2) ? 3
                                                                                              : 0;
  }
  if (c >= 0xF0 && c <= 0xF4) {
    return follows(i + 1, c == 0xF0 ? 0x90 : 0x80, c == 0xF4 ? 0x8F : 0xBF) && follows(i + 2) &&
                   follows(i + 3)
               ? 4
               : 0;
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::string> ReadInput(const std::string& path) {
  if (path != "-") {
    absl::StatusOr<std::string> text = ReadFile(path, kMaxBytes);
    // Of a file here: NotFound stays, the rest is the caller's to put right.
    if (!text.ok() && !absl::IsNotFound(text.status())) return absl::InvalidArgumentError(text.status().message());
    return text;
  }
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

absl::StatusOr<std::vector<int32_t>> ParseTokenIds(const std::string& text) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < text.size();) {
    if (text[i] < '0' || text[i] > '9') {
      ++i;
      continue;
    }
    uint64_t value = 0;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
      value = value * 10 + static_cast<uint64_t>(text[i] - '0');
      if (value > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
        return absl::InvalidArgumentError(
            absl::StrCat("token ids: a number at offset ", i, " is too large"));
      }
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

absl::Status CheckUtf8(const std::string& text, const std::string& what) {
  for (size_t i = 0; i < text.size();) {
    const size_t n = CharacterBytes(text, i);
    if (n == 0) {
      return absl::InvalidArgumentError(absl::StrFormat("%s is not UTF-8: byte 0x%02X at offset %d",
                                                        what, static_cast<unsigned char>(text[i]),
                                                        i));
    }
    i += n;
  }
  return absl::OkStatus();
}

}  // namespace sparkv::cli
