// One UTF-8 character at a time, of any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sparkv {

// What starts at a byte: a character (valid); or a maximal invalid sequence (Unicode 15,
// section 3.9, 1 to 3 bytes), of which `unfinished` says that the end of the text cuts a character
// off.
struct Utf8Unit {
  uint32_t code;  // U+FFFD unless valid
  uint8_t length;
  bool valid;
  bool unfinished;
};

// `left` bytes at p, at least 1.
inline Utf8Unit NextUtf8Unit(const uint8_t* p, size_t left) {
  constexpr uint32_t kBad = 0xFFFD;
  const uint8_t lead = p[0];
  if (lead < 0x80) return {lead, 1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {kBad, 1, false, false};
  const uint8_t need = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Second bytes that exclude overlong forms, surrogates and code points above 0x10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  uint32_t code = lead & (0x7Fu >> need);
  for (uint8_t i = 1; i < need; ++i) {
    if (i == left) return {kBad, i, false, true};
    if (p[i] < (i == 1 ? low : 0x80) || p[i] > (i == 1 ? high : 0xBF))
      return {kBad, i, false, false};
    code = (code << 6) | (p[i] & 0x3Fu);
  }
  return {code, need, true, false};
}

// The offset of the first invalid sequence; nullopt when there is none.
std::optional<size_t> FindInvalidUtf8(std::string_view bytes);

// InvalidArgument "WHAT is not UTF-8: byte 0xE6 at offset 12".
absl::Status CheckUtf8(std::string_view text, std::string_view what);

// `bytes` as valid UTF-8: each maximal invalid sequence becomes one U+FFFD. If `pending` is given,
// an unfinished character at the end is moved there instead.
std::string ToValidUtf8(std::string_view bytes, std::string* pending = nullptr);

}  // namespace sparkv
