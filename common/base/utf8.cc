#include "common/base/utf8.h"

#include "absl/strings/str_format.h"

namespace sparkv {

std::optional<size_t> FindInvalidUtf8(std::string_view bytes) {
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Unit unit = NextUtf8Unit(p + i, bytes.size() - i);
    if (!unit.valid) return i;
    i += unit.length;
  }
  return std::nullopt;
}

absl::Status CheckUtf8(std::string_view text, std::string_view what) {
  const std::optional<size_t> at = FindInvalidUtf8(text);
  if (!at) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s is not UTF-8: byte 0x%02X at offset %d",
                                                    std::string(what),
                                                    static_cast<uint8_t>(text[*at]), *at));
}

std::string ToValidUtf8(std::string_view bytes, std::string* pending) {
  constexpr char kReplacement[] = "\xEF\xBF\xBD";
  std::string out;
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Unit unit = NextUtf8Unit(p + i, bytes.size() - i);
    if (unit.valid) {
      out.append(bytes.substr(i, unit.length));
    } else if (unit.unfinished && pending != nullptr) {
      *pending = std::string(bytes.substr(i));
      return out;
    } else {
      out += kReplacement;
    }
    i += unit.length;
  }
  return out;
}

}  // namespace sparkv
