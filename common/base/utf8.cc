#include "common/base/utf8.h"

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
