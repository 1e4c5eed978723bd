// Unicode classes that pre-tokenizer expressions speak of: \p{L}, \p{N}, \s. The table is ours and
// not a library's, since server and edge must cut the same words whatever Unicode version their
// systems have.
#pragma once

#include <cstdint>

namespace sparkv {

enum class CharClass : uint8_t { kOther = 0, kLetter, kNumber, kSpace };

inline constexpr uint32_t kCodePoints = 0x110000;

// Immutable and thread-safe.
class CharClasses {
 public:
  static const CharClasses& Get();
  // `code` < kCodePoints.
  CharClass Of(uint32_t code) const { return of_[code]; }

 private:
  CharClasses();
  void Fill(uint32_t first, uint32_t last, CharClass value);
  CharClass of_[kCodePoints] = {};  // 1.1 MB, of which a text touches a few pages
};

}  // namespace sparkv
