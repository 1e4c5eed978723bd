#include "common/llm/chat_template.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/utf8.h"

namespace sparkv {
namespace {

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// What Python's str.strip() takes away, which Jinja's trim is.
bool IsBlank(uint32_t c) {
  return (c >= 0x9 && c <= 0xD) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

Utf8Unit UnitAt(std::string_view text, size_t at) {
  return NextUtf8Unit(reinterpret_cast<const uint8_t*>(text.data()) + at, text.size() - at);
}

std::string_view TrimLeft(std::string_view text) {
  while (!text.empty()) {
    const Utf8Unit unit = UnitAt(text, 0);
    if (!IsBlank(unit.code)) break;
    text.remove_prefix(unit.length);
  }
  return text;
}

std::string_view TrimRight(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;  // of the last character
    while (begin > 0 && text.size() - begin < 4 &&
           (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) {
      --begin;
    }
    const Utf8Unit unit = UnitAt(text, begin);
    if (begin + unit.length != text.size() || !IsBlank(unit.code)) break;
    text.remove_suffix(unit.length);
  }
  return text;
}

std::string_view Trim(std::string_view text) { return TrimRight(TrimLeft(text)); }

// A template in pieces, in order.
struct Piece {
  enum Kind : uint8_t {
    kText,       // outside of all delimiters
    kLiteral,    // a string in {{ }} or {% %}, its escapes resolved
    kStatement,  // the inside of {% %}; comes before its literals
  } kind;
  std::string text;
};

char Unescape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    default:
      return c;
  }
}

// Every "{%" needs its "%}", every "{{" its "}}", every "{#" its "#}", outside of strings.
absl::StatusOr<std::vector<Piece>> SplitTemplate(std::string_view source) {
  std::vector<Piece> pieces;
  size_t text_begin = 0;
  size_t i = 0;
  while (i + 1 < source.size()) {
    const char kind = source[i + 1];
    if (source[i] != '{' || (kind != '%' && kind != '{' && kind != '#')) {
      ++i;
      continue;
    }
    if (i > text_begin) {
      pieces.push_back({Piece::kText, std::string(source.substr(text_begin, i - text_begin))});
    }
    const char close[] = {kind == '{' ? '}' : kind, '}', 0};
    const size_t statement = pieces.size();
    if (kind == '%') pieces.push_back({Piece::kStatement, ""});
    size_t at = i + 2;
    while (at < source.size() && source.substr(at, 2) != close) {
      const char quote = source[at++];
      if (kind == '#' || (quote != '\'' && quote != '"')) continue;
      std::string literal;
      for (; at < source.size() && source[at] != quote; ++at) {
        if (source[at] == '\\' && at + 1 < source.size()) {
          literal += Unescape(source[++at]);
        } else {
          literal += source[at];
        }
      }
      if (at < source.size()) ++at;
      pieces.push_back({Piece::kLiteral, std::move(literal)});
    }
    if (at >= source.size()) {
      return absl::InvalidArgumentError(absl::StrCat("key tokenizer.chat_template: \"{",
                                                     std::string(1, kind), "\" at byte ", i,
                                                     " is not closed by \"", close, "\""));
    }
    if (kind == '%') pieces[statement].text = std::string(source.substr(i + 2, at - i - 2));
    i = at + 2;
    text_begin = i;
  }
  if (text_begin < source.size()) {
    pieces.push_back({Piece::kText, std::string(source.substr(text_begin))});
  }
  return pieces;
}

constexpr std::string_view kChatMlAssistant = "<|im_start|>assistant\n";

// The system prompt that a ChatML template writes when the messages have none: what one of its
// texts has between a system header and <|im_end|>.
std::string DefaultSystem(const std::vector<Piece>& pieces) {
  constexpr std::string_view kHeader = "<|im_start|>system\n";
  for (const Piece& piece : pieces) {
    if (piece.kind == Piece::kStatement) continue;
    const size_t at = piece.text.find(kHeader);
    if (at == std::string::npos) continue;
    const size_t begin = at + kHeader.size();
    const size_t end = piece.text.find("<|im_end|>", begin);
    if (end != std::string::npos && end > begin) return piece.text.substr(begin, end - begin);
  }
  return "";
}

// The assistant's opening of a ChatML template: the text after "if add_generation_prompt". Some
// open a thought there.
std::string ChatMlGeneration(const std::vector<Piece>& pieces) {
  bool after = false;
  for (const Piece& piece : pieces) {
    if (piece.kind == Piece::kStatement) {
      after = after || Contains(piece.text, "add_generation_prompt");
    } else if (after && piece.text.rfind(kChatMlAssistant, 0) == 0) {
      return piece.text;
    }
  }
  return std::string(kChatMlAssistant);
}

// Llama 3.1 and later begin every system turn with two dates; today's is a constant of the template
// unless the caller gives another.
std::string Llama3Preamble(const std::vector<Piece>& pieces) {
  constexpr std::string_view kCutting = "Cutting Knowledge Date: December 2023\n";
  bool dates = false;
  std::string today = "26 Jul 2024";
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].kind != Piece::kStatement && Contains(pieces[i].text, kCutting)) dates = true;
    if (pieces[i].kind == Piece::kStatement && Contains(pieces[i].text, "set date_string") &&
        i + 1 < pieces.size() && pieces[i + 1].kind == Piece::kLiteral &&
        !Contains(pieces[i + 1].text, "%")) {
      today = pieces[i + 1].text;
    }
  }
  return dates ? absl::StrCat(std::string(kCutting), "Today Date: ", today, "\n\n") : "";
}

// A Qwen 3 template drops the thoughts of earlier turns.
std::string_view WithoutThought(std::string_view content) {
  constexpr std::string_view kEnd = "</think>";
  const size_t end = content.rfind(kEnd);
  if (end == std::string_view::npos) return content;
  content.remove_prefix(end + kEnd.size());
  while (!content.empty() && content.front() == '\n') content.remove_prefix(1);
  return content;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(std::string_view source,
                                                                   const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const std::vector<Piece> pieces, SplitTemplate(source));
  auto out = std::unique_ptr<ChatTemplate>(new ChatTemplate(tokenizer));
  out->Recognise(source);
  switch (out->format_) {
    case ChatFormat::kLlama3:
      out->preamble_ = Llama3Preamble(pieces);
      out->generation_ = "<|start_header_id|>assistant<|end_header_id|>\n\n";
      break;
    case ChatFormat::kChatMl:
      out->default_system_ = DefaultSystem(pieces);
      out->generation_ = ChatMlGeneration(pieces);
      break;
    case ChatFormat::kQwen3:  // an empty thought, as with enable_thinking=false: the answer begins
                              // at once
      out->default_system_ = DefaultSystem(pieces);
      out->generation_ = absl::StrCat(std::string(kChatMlAssistant), "<think>\n\n</think>\n\n");
      break;
    case ChatFormat::kRaw:
      break;
  }
  return out;
}

void ChatTemplate::Recognise(std::string_view source) {
  const auto uses = [&](std::string_view token) {
    return Contains(source, token) && tokenizer_->FindSpecial(token).has_value();
  };
  const VocabSpec& spec = tokenizer_->spec();
  if (source.empty()) {
    reason_ = "the model has no chat template";
  } else if (uses("<|im_start|>") && uses("<|im_end|>") && !Contains(source, "<|im_sep|>")) {
    format_ = Contains(source, "enable_thinking") ? ChatFormat::kQwen3 : ChatFormat::kChatMl;
    bos_ = spec.add_bos || (spec.bos.has_value() && Contains(source, "bos_token"));
  } else if (uses("<|start_header_id|>") && uses("<|end_header_id|>") && uses("<|eot_id|>")) {
    format_ = ChatFormat::kLlama3;
    bos_ = spec.add_bos || (spec.bos.has_value() && (Contains(source, "bos_token") ||
                                                     Contains(source, "<|begin_of_text|>")));
  } else {
    reason_ = "the model's chat template is none of chatml, llama3, qwen3";
  }
}

const char* ChatTemplate::name() const {
  switch (format_) {
    case ChatFormat::kChatMl:
      return "chatml";
    case ChatFormat::kLlama3:
      return "llama3";
    case ChatFormat::kQwen3:
      return "qwen3";
    case ChatFormat::kRaw:
      break;
  }
  return "raw";
}

absl::Status ChatTemplate::AppendTemplate(std::string_view text, std::vector<int32_t>* ids) const {
  EncodeOptions options;
  options.parse_special = true;
  ASSIGN_OR_RETURN(const std::vector<int32_t> part, tokenizer_->Encode(text, options));
  ids->insert(ids->end(), part.begin(), part.end());
  return absl::OkStatus();
}

absl::Status ChatTemplate::AppendUser(std::string_view text, const CancelledFn& cancelled,
                                      std::vector<int32_t>* ids) const {
  ASSIGN_OR_RETURN(const std::vector<int32_t> part,
                   tokenizer_->Encode(text, {.cancelled = cancelled}));
  ids->insert(ids->end(), part.begin(), part.end());
  return absl::OkStatus();
}

absl::Status ChatTemplate::AppendHeader(std::string_view role, std::vector<int32_t>* ids) const {
  return AppendTemplate(
      format_ == ChatFormat::kLlama3
          ? absl::StrCat("<|start_header_id|>", std::string(role), "<|end_header_id|>\n\n")
          : absl::StrCat("<|im_start|>", std::string(role), "\n"),
      ids);
}

absl::Status ChatTemplate::AppendEnd(std::vector<int32_t>* ids) const {
  return AppendTemplate(format_ == ChatFormat::kLlama3 ? "<|eot_id|>" : "<|im_end|>\n", ids);
}

absl::Status ChatTemplate::AppendOpening(std::string_view system, std::vector<int32_t>* ids) const {
  if (bos_) ids->push_back(*tokenizer_->spec().bos);
  const std::string_view prompt = system.empty() ? std::string_view(default_system_) : system;
  if (prompt.empty() && preamble_.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(AppendHeader("system", ids));
  RETURN_IF_ERROR(AppendTemplate(preamble_, ids));
  RETURN_IF_ERROR(AppendUser(format_ == ChatFormat::kLlama3 ? Trim(prompt) : prompt, nullptr, ids));
  return AppendEnd(ids);
}

absl::Status ChatTemplate::AppendClosing(std::vector<int32_t>* ids) const {
  RETURN_IF_ERROR(AppendEnd(ids));
  return AppendTemplate(generation_, ids);
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::Document(std::string_view system,
                                                            std::string_view document,
                                                            const CancelledFn& cancelled) const {
  std::vector<int32_t> ids;
  if (format_ == ChatFormat::kRaw) {
    return tokenizer_->Encode(document, {.add_bos = true, .cancelled = cancelled});
  }
  RETURN_IF_ERROR(AppendOpening(system, &ids));
  RETURN_IF_ERROR(AppendHeader("user", &ids));
  // The right end of what the user says is the question's.
  RETURN_IF_ERROR(
      AppendUser(format_ == ChatFormat::kLlama3 ? TrimLeft(document) : document, cancelled, &ids));
  return ids;
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::Question(std::string_view question,
                                                            const CancelledFn& cancelled) const {
  if (format_ == ChatFormat::kRaw) return tokenizer_->Encode(question, {.cancelled = cancelled});
  std::vector<int32_t> ids;
  RETURN_IF_ERROR(AppendUser("\n\n", nullptr, &ids));
  RETURN_IF_ERROR(
      AppendUser(format_ == ChatFormat::kLlama3 ? TrimRight(question) : question, cancelled, &ids));
  RETURN_IF_ERROR(AppendClosing(&ids));
  return ids;
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::Prompt(std::string_view system,
                                                          std::string_view question,
                                                          const CancelledFn& cancelled) const {
  if (format_ == ChatFormat::kLlama3) question = TrimRight(question);
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, Document(system, question, cancelled));
  if (format_ != ChatFormat::kRaw) RETURN_IF_ERROR(AppendClosing(&ids));
  return ids;
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::NextTurn(std::string_view question, bool ended,
                                                            const CancelledFn& cancelled) const {
  if (format_ == ChatFormat::kRaw) return tokenizer_->Encode(question, {.cancelled = cancelled});
  std::vector<int32_t> ids;
  if (!ended) {
    RETURN_IF_ERROR(AppendEnd(&ids));
  } else if (format_ != ChatFormat::kLlama3) {  // the line break after the end-of-turn token
    RETURN_IF_ERROR(AppendTemplate("\n", &ids));
  }
  RETURN_IF_ERROR(AppendHeader("user", &ids));
  RETURN_IF_ERROR(
      AppendUser(format_ == ChatFormat::kLlama3 ? Trim(question) : question, cancelled, &ids));
  RETURN_IF_ERROR(AppendClosing(&ids));
  return ids;
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::Render(
    std::span<const ChatMessage> messages) const {
  if (format_ == ChatFormat::kRaw) {
    return absl::FailedPreconditionError(
        absl::StrCat("a conversation needs a chat template; ", reason_));
  }
  if (messages.empty()) return absl::InvalidArgumentError("messages: there are none");
  std::vector<int32_t> ids;
  const bool has_system = messages[0].role == "system";
  RETURN_IF_ERROR(AppendOpening(has_system ? messages[0].content : "", &ids));
  for (size_t i = has_system ? 1 : 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.role != "user" && message.role != "assistant") {
      return absl::InvalidArgumentError(
          absl::StrCat("messages: role ", i, " is \"", message.role,
                       "\", allowed: system (first only), user, assistant"));
    }
    std::string_view content = message.content;
    if (format_ == ChatFormat::kLlama3) content = Trim(content);
    if (format_ == ChatFormat::kQwen3 && message.role == "assistant")
      content = WithoutThought(content);
    RETURN_IF_ERROR(AppendHeader(message.role, &ids));
    RETURN_IF_ERROR(AppendUser(content, nullptr, &ids));
    RETURN_IF_ERROR(AppendEnd(&ids));
  }
  RETURN_IF_ERROR(AppendTemplate(generation_, &ids));
  return ids;
}

}  // namespace sparkv
