// Cuts text into the words that BPE merges within, as the regular expression of each published
// tokenizer does. The expressions are scanned by hand: one pass without backtracking, so that no
// text meets a matcher's limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/llm/pretokenizer_classes.h"

namespace sparkv {

enum class PreTokenizerRule : uint8_t { kSmollm, kGpt2, kLlama3, kQwen2 };

// Immutable and thread-safe.
class PreTokenizer {
 public:
  // `name` as in tokenizer.ggml.pre. Unimplemented with the supported names.
  static absl::StatusOr<PreTokenizer> Create(std::string_view name);
  explicit PreTokenizer(PreTokenizerRule rule) : rule_(rule), classes_(&CharClasses::Get()) {}

  // The end of the word that begins at `begin` < text.size(); > begin. A maximal invalid UTF-8
  // sequence is cut as the U+FFFD that a decoder would put in its place (a symbol), but its bytes
  // stay.
  size_t WordEnd(std::string_view text, size_t begin) const;
  // Words in order; together they are the text.
  std::vector<std::string_view> Split(std::string_view text) const;

  PreTokenizerRule rule() const { return rule_; }
  // A word that is itself a token is taken whole, before any merge (llama-bpe).
  bool whole_words_first() const { return rule_ == PreTokenizerRule::kLlama3; }

 private:
  PreTokenizerRule rule_;
  const CharClasses* classes_;
};

}  // namespace sparkv
