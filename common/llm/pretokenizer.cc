#include "common/llm/pretokenizer.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"

namespace sparkv {
namespace {

struct Name {
  std::string_view name;
  PreTokenizerRule rule;
};

constexpr Name kNames[] = {
    {"smollm", PreTokenizerRule::kSmollm},
    {"starcoder", PreTokenizerRule::kSmollm},
    {"refact", PreTokenizerRule::kSmollm},
    {"command-r", PreTokenizerRule::kSmollm},
    {"llama-bpe", PreTokenizerRule::kLlama3},
    {"llama3", PreTokenizerRule::kLlama3},
    {"llama-v3", PreTokenizerRule::kLlama3},
    {"qwen2", PreTokenizerRule::kQwen2},
    {"deepseek-r1-qwen", PreTokenizerRule::kQwen2},
    {"gpt-2", PreTokenizerRule::kGpt2},
    {"gpt2", PreTokenizerRule::kGpt2},
};

// A place in the text with the class of the character there; at the end `length` is 0.
class Cursor {
 public:
  Cursor(std::string_view text, size_t at, const CharClasses* classes)
      : bytes_(reinterpret_cast<const uint8_t*>(text.data())),
        size_(text.size()),
        at_(at),
        classes_(classes) {
    Read();
  }

  size_t at() const { return at_; }
  bool end() const { return length_ == 0; }
  CharClass type() const { return type_; }
  bool Is(CharClass type) const { return !end() && type_ == type; }
  uint32_t code() const { return code_; }
  bool IsNewline() const { return code_ == '\r' || code_ == '\n'; }

  void Next() {
    at_ += length_;
    Read();
  }
  void SkipAll(CharClass type) {
    while (Is(type)) Next();
  }

 private:
  void Read() {
    if (at_ >= size_) {
      length_ = 0;
      code_ = 0;
      return;
    }
    if (bytes_[at_] < 0x80) {
      code_ = bytes_[at_];
      length_ = 1;
    } else {
      const Utf8Unit unit = NextUtf8Unit(bytes_ + at_, size_ - at_);
      code_ = unit.code;
      length_ = unit.length;
    }
    type_ = classes_->Of(code_);
  }

  const uint8_t* bytes_;
  size_t size_;
  size_t at_;
  const CharClasses* classes_;
  uint32_t code_ = 0;
  uint8_t length_ = 0;
  CharClass type_ = CharClass::kOther;
};

// 's|'t|'re|'ve|'m|'ll|'d at the apostrophe: the word's end, or 0. With `fold`, any case; U+017F is
// an s then (Unicode's simple case folding, as the reference's expression engine has it).
size_t ContractionEnd(std::string_view text, size_t begin, bool fold) {
  const auto letter = [&](size_t i) -> char {
    if (i >= text.size()) return 0;
    const char c = text[i];
    return fold && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(begin + 1);
  const char second = letter(begin + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
      (first == 'l' && second == 'l')) {
    return begin + 3;
  }
  if (fold && text.substr(begin + 1, 2) == "\xC5\xBF") return begin + 3;
  return 0;
}

// \s+(?!\S)|\s+ where no newline rule came first: a run of whitespace but its last character, which
// goes with the word that follows; all of it at the end of the text or of a piece that digits
// bound.
size_t SpaceEnd(Cursor at, bool digits_bound) {
  size_t last = at.at();
  size_t count = 0;
  for (; at.Is(CharClass::kSpace); at.Next(), ++count) last = at.at();
  if (count == 1 || at.end() || (digits_bound && at.Is(CharClass::kNumber))) return at.at();
  return last;
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+   (GPT-2, encoder.py)
// With `single_digits` each \p{N} is cut off first and the expression sees only what lies between.
size_t Gpt2WordEnd(std::string_view text, size_t begin, const CharClasses* classes,
                   bool single_digits) {
  if (text[begin] == '\'') {
    const size_t end = ContractionEnd(text, begin, false);
    if (end != 0) return end;
  }
  Cursor at(text, begin, classes);
  const Cursor start = at;
  if (at.code() == ' ') at.Next();
  if (at.end() || at.type() == CharClass::kSpace) return SpaceEnd(start, single_digits);
  if (single_digits && at.type() == CharClass::kNumber) {
    if (at.at() != begin) return at.at();  // the blank before a digit
    at.Next();
    return at.at();
  }
  at.SkipAll(at.type());
  return at.at();
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max_digits}|
// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+
// |\s+(?!\S)|\s+   (Llama 3 with 3 digits, Qwen 2 with 1)
size_t Llama3WordEnd(std::string_view text, size_t begin, const CharClasses* classes,
                     int max_digits) {
  if (text[begin] == '\'') {
    const size_t end = ContractionEnd(text, begin, true);
    if (end != 0) return end;
  }
  Cursor at(text, begin, classes);
  const Cursor start = at;
  if (at.type() == CharClass::kNumber) {
    for (int i = 0; i < max_digits && at.Is(CharClass::kNumber); ++i) at.Next();
    return at.at();
  }
  if (at.type() == CharClass::kLetter) {
    at.SkipAll(CharClass::kLetter);
    return at.at();
  }
  if (!at.IsNewline()) {  // one character of any other kind goes with the letters after it
    at.Next();
    if (at.Is(CharClass::kLetter)) {
      at.SkipAll(CharClass::kLetter);
      return at.at();
    }
    at = start;
  }
  if (at.code() == ' ') at.Next();
  if (at.Is(CharClass::kOther)) {
    at.SkipAll(CharClass::kOther);
    while (!at.end() && at.IsNewline()) at.Next();
    return at.at();
  }
  size_t after_newline = 0;
  for (at = start; at.Is(CharClass::kSpace);) {
    const bool newline = at.IsNewline();
    at.Next();
    if (newline) after_newline = at.at();
  }
  return after_newline != 0 ? after_newline : SpaceEnd(start, false);
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::Create(std::string_view name) {
  std::string supported;
  for (const Name& known : kNames) {
    if (known.name == name) return PreTokenizer(known.rule);
    absl::StrAppend(&supported, supported.empty() ? "" : ", ", std::string(known.name));
  }
  return absl::UnimplementedError(absl::StrCat("key tokenizer.ggml.pre: pre-tokenizer \"",
                                               std::string(name),
                                               "\" is not supported; supported: ", supported));
}

size_t PreTokenizer::WordEnd(std::string_view text, size_t begin) const {
  switch (rule_) {
    case PreTokenizerRule::kSmollm:
      return Gpt2WordEnd(text, begin, classes_, true);
    case PreTokenizerRule::kGpt2:
      return Gpt2WordEnd(text, begin, classes_, false);
    case PreTokenizerRule::kLlama3:
      return Llama3WordEnd(text, begin, classes_, 3);
    case PreTokenizerRule::kQwen2:
      break;
  }
  return Llama3WordEnd(text, begin, classes_, 1);
}

std::vector<std::string_view> PreTokenizer::Split(std::string_view text) const {
  std::vector<std::string_view> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = WordEnd(text, begin);
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

}  // namespace sparkv
