// Prompts in a model's chat format. The template in the GGUF is recognised, not run: ChatML, Llama
// 3 and Qwen 3 are known; any other (or none) means raw completion.
//
// User text is tokenized apart from the template's own parts and never parsed for special tokens,
// so that text cannot close a turn. Each boundary between parts is a forced token boundary: the ids
// of a document don't depend on the question.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/llm/tokenizer.h"

namespace sparkv {

enum class ChatFormat : uint8_t { kRaw, kChatMl, kLlama3, kQwen3 };

// Immutable and thread-safe; the tokenizer must outlive it.
class ChatTemplate {
 public:
  // Recognises tokenizer.chat_template. InvalidArgument with the position for a template whose "{%"
  // or "{{" is not closed; a template that is well formed but unknown gives kRaw and a reason.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(std::string_view source,
                                                              const Tokenizer& tokenizer);

  ChatFormat format() const { return format_; }
  const char* name() const;                              // "chatml", "llama3", "qwen3", "raw"
  const std::string& reason() const { return reason_; }  // why kRaw was chosen; else empty

  // A stored context: the opening (BOS if the format has one, the system prompt) and the start of
  // the user's turn with the document. `system` empty: the template's default, which may be none.
  // In kRaw: the document (BOS as the vocabulary asks).
  absl::StatusOr<std::vector<int32_t>> Document(std::string_view system,
                                                std::string_view document) const;
  // What follows a stored context: a blank line, the question, the end of the user's turn and the
  // assistant's opening.
  absl::StatusOr<std::vector<int32_t>> Question(std::string_view question) const;
  // A prompt without a stored context.
  absl::StatusOr<std::vector<int32_t>> Prompt(std::string_view system,
                                              std::string_view question) const;
  // After generated ids that ended without (or, `ended`, with) the end-of-turn token: closes that
  // turn, then a user's turn.
  absl::StatusOr<std::vector<int32_t>> NextTurn(std::string_view question, bool ended) const;

 private:
  explicit ChatTemplate(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  absl::Status AppendTemplate(std::string_view text, std::vector<int32_t>* ids) const;
  absl::Status AppendUser(std::string_view text, std::vector<int32_t>* ids) const;
  absl::Status AppendOpening(std::string_view system, std::vector<int32_t>* ids) const;
  absl::Status AppendClosing(std::vector<int32_t>* ids) const;
  absl::Status AppendUserHeader(std::vector<int32_t>* ids) const;

  const Tokenizer* tokenizer_;
  ChatFormat format_ = ChatFormat::kRaw;
  std::string default_system_;
  bool llama3_bos_ = false;
  std::string reason_;
};

}  // namespace sparkv
