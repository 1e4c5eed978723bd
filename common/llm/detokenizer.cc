#include "common/llm/detokenizer.h"

#include <utility>

#include "common/llm/tokenizer_utf8.h"

namespace sparkv {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

}  // namespace

std::string ToValidUtf8(std::string_view bytes, std::string* pending) {
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

std::string Detokenizer::Push(int32_t id) {
  if (!show_special_ && tokenizer_->IsSpecial(id)) return "";
  const std::string bytes = std::exchange(pending_, "") + std::string(tokenizer_->TokenBytes(id));
  return ToValidUtf8(bytes, &pending_);
}

std::string Detokenizer::Finish() { return ToValidUtf8(std::exchange(pending_, "")); }

}  // namespace sparkv
