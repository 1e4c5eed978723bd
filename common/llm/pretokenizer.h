// Cuts text into the words that BPE merges within, after the regular expression of each published tokenizer.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sparkv {

// Thread-safe.
class PreTokenizer {
 public:
  // `name` as in tokenizer.ggml.pre. Unimplemented with the supported names.
  static absl::StatusOr<std::unique_ptr<PreTokenizer>> Create(const std::string& name);
  ~PreTokenizer();

  // Words in order; together they are the text. Bytes that are not UTF-8 form words of their own.
  std::vector<std::string_view> Split(std::string_view text) const;

  // A word that is itself a token is taken whole, before any merge (llama-bpe).
  bool whole_words_first() const { return whole_words_first_; }

 private:
  struct Stage;
  PreTokenizer();
  std::vector<std::unique_ptr<Stage>> stages_;
  bool whole_words_first_ = false;
};

}  // namespace sparkv
