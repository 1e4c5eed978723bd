// Prompts in a model's chat format. The template in the GGUF is recognised, not run: ChatML, Llama
// 3 and Qwen 3 are known; any other (or none) means raw completion.
//
// User text is tokenized apart from the template's own parts and never parsed for special tokens,
// so that text cannot close a turn. Each boundary between parts is a forced token boundary: the ids
// of a document don't depend on the question.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/llm/tokenizer.h"

namespace sparkv {

enum class ChatFormat : uint8_t { kRaw, kChatMl, kLlama3, kQwen3 };

struct ChatMessage {
  std::string role;  // system (first only), user, assistant
  std::string content;
};

// Immutable and thread-safe; the tokenizer must outlive it. `cancelled` as in EncodeOptions. Llama
// 3's format trims what people write (as Python's strip does), the others keep it as it is. Each
// method that begins a sequence writes BOS exactly once, or never when neither the vocabulary nor
// the template asks for one.
class ChatTemplate {
 public:
  // Recognises tokenizer.chat_template. InvalidArgument with the position for a template whose
  // "{%", "{{" or "{#" is not closed; a template that is well formed but unknown gives kRaw and a
  // reason.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(std::string_view source,
                                                              const Tokenizer& tokenizer);

  ChatFormat format() const { return format_; }
  const char* name() const;                              // "chatml", "llama3", "qwen3", "raw"
  const std::string& reason() const { return reason_; }  // why kRaw was chosen; else empty
  const std::string& default_system() const { return default_system_; }  // empty: none

  // A stored context: the opening (BOS if the format has one, the system prompt) and the start of
  // the user's turn with the document. `system` empty: the template's default, which may be none.
  // In kRaw: the document (BOS as the vocabulary asks).
  absl::StatusOr<std::vector<int32_t>> Document(std::string_view system, std::string_view document,
                                                const CancelledFn& cancelled = nullptr) const;
  // What follows a stored context: a blank line, the question, the end of the user's turn and the
  // assistant's opening. In kRaw: the question alone.
  absl::StatusOr<std::vector<int32_t>> Question(std::string_view question,
                                                const CancelledFn& cancelled = nullptr) const;
  // A prompt without a stored context.
  absl::StatusOr<std::vector<int32_t>> Prompt(std::string_view system, std::string_view question,
                                              const CancelledFn& cancelled = nullptr) const;
  // After generated ids that ended without (or, `ended`, with) the end-of-turn token: closes that
  // turn, then a user's turn.
  absl::StatusOr<std::vector<int32_t>> NextTurn(std::string_view question, bool ended,
                                                const CancelledFn& cancelled = nullptr) const;
  // A whole conversation and the assistant's opening. InvalidArgument for another role, a system
  // message that is not the first, or no messages; FailedPrecondition in kRaw.
  absl::StatusOr<std::vector<int32_t>> Render(std::span<const ChatMessage> messages) const;

 private:
  explicit ChatTemplate(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  void Recognise(std::string_view source);
  absl::Status AppendTemplate(std::string_view text, std::vector<int32_t>* ids) const;
  absl::Status AppendUser(std::string_view text, const CancelledFn& cancelled,
                          std::vector<int32_t>* ids) const;
  absl::Status AppendHeader(std::string_view role, std::vector<int32_t>* ids) const;
  absl::Status AppendEnd(std::vector<int32_t>* ids) const;
  absl::Status AppendOpening(std::string_view system, std::vector<int32_t>* ids) const;
  absl::Status AppendClosing(std::vector<int32_t>* ids) const;

  const Tokenizer* tokenizer_;
  ChatFormat format_ = ChatFormat::kRaw;
  bool bos_ = false;
  std::string default_system_;
  std::string preamble_;  // before each system prompt (Llama 3.1's dates); its turn is written even
                          // without a prompt
  std::string generation_;  // the assistant's opening
  std::string reason_;
};

}  // namespace sparkv
