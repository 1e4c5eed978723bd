// Turns ids into text as they come: chunks never end inside a character and are always valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/llm/tokenizer.h"

namespace sparkv {

// Thread-compatible; the tokenizer must outlive it.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool show_special = false)
      : tokenizer_(&tokenizer), show_special_(show_special) {}

  // The text that became complete with this token; may be empty. A byte that cannot be part of a
  // character becomes U+FFFD, one for each maximal invalid sequence (Unicode 15, section 3.9), and
  // never blocks what follows.
  std::string Push(int32_t id);
  // What is left when no more tokens come: an unfinished character becomes one U+FFFD. Resets.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool show_special_;
  std::string pending_;  // the start of a character, at most 3 bytes
};

}  // namespace sparkv
