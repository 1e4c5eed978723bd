#include "common/llm/detokenizer.h"

#include <utility>

namespace sparkv {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// What starts at p: `length` bytes that are a character (valid), or a maximal invalid sequence, or the start of a
// character that the end of the text cuts off (unfinished).
struct Unit {
  size_t length;
  bool valid;
  bool unfinished;
};

Unit NextUnit(const uint8_t* p, size_t left) {
  if (p[0] < 0x80) return {1, true, false};
  size_t need = 0;
  uint8_t low = 0x80, high = 0xBF;  // range of the second byte
  if (p[0] >= 0xC2 && p[0] <= 0xDF) {
    need = 2;
  } else if (p[0] >= 0xE0 && p[0] <= 0xEF) {
    need = 3;
    if (p[0] == 0xE0) low = 0xA0;
    if (p[0] == 0xED) high = 0x9F;
  } else if (p[0] >= 0xF0 && p[0] <= 0xF4) {
    need = 4;
    if (p[0] == 0xF0) low = 0x90;
    if (p[0] == 0xF4) high = 0x8F;
  } else {
    return {1, false, false};
  }
  for (size_t i = 1; i < need; ++i) {
    if (i == left) return {i, false, true};
    if (p[i] < (i == 1 ? low : 0x80) || p[i] > (i == 1 ? high : 0xBF)) return {i, false, false};
  }
  return {need, true, false};
}

}  // namespace

std::string ToValidUtf8(std::string_view bytes, std::string* pending) {
  std::string out;
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  for (size_t i = 0; i < bytes.size();) {
    const Unit unit = NextUnit(p + i, bytes.size() - i);
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
