#include "common/llm/chat_template.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace sparkv {
namespace {

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

constexpr std::string_view kBlanks = " \t\r\n\v\f";

std::string_view TrimLeft(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

std::string_view TrimRight(std::string_view text) {
  const size_t end = text.find_last_not_of(kBlanks);
  return end == std::string_view::npos ? std::string_view() : text.substr(0, end + 1);
}

std::string_view Trim(std::string_view text) { return TrimRight(TrimLeft(text)); }

// Every "{%" needs its "%}", every "{{" its "}}", outside string literals.
absl::Status CheckDelimiters(std::string_view source) {
  for (size_t i = 0; i + 1 < source.size(); ++i) {
    if (source[i] != '{' || (source[i + 1] != '%' && source[i + 1] != '{' && source[i + 1] != '#'))
      continue;
    const char kind = source[i + 1];
    const size_t begin = i;
    const char close = kind == '{' ? '}' : kind;
    char quote = 0;
    bool closed = false;
    for (i += 2; i < source.size(); ++i) {
      const char c = source[i];
      if (quote != 0) {
        if (c == '\\')
          ++i;
        else if (c == quote)
          quote = 0;
      } else if (kind != '#' && (c == '\'' || c == '"')) {
        quote = c;
      } else if (c == close && i + 1 < source.size() && source[i + 1] == '}') {
        closed = true;
        ++i;
        break;
      }
    }
    if (!closed) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.chat_template: \"{",
                                                     std::string(1, kind), "\" at byte ", begin,
                                                     " is not closed"));
    }
  }
  return absl::OkStatus();
}

// The system prompt that a ChatML template writes when the messages have none: the literal text
// between a system header and
// <|im_end|>.
std::string DefaultSystem(std::string_view source) {
  constexpr std::string_view kHeader = "<|im_start|>system";
  for (size_t at = source.find(kHeader); at != std::string_view::npos;
       at = source.find(kHeader, at + 1)) {
    size_t begin = at + kHeader.size();
    if (source.substr(begin, 2) == "\\n")
      begin += 2;
    else if (source.substr(begin, 1) == "\n")
      begin += 1;
    else
      continue;
    const size_t end = source.find("<|im_end|>", begin);
    if (end == std::string_view::npos) break;
    const std::string_view text = source.substr(begin, end - begin);
    if (text.empty() || text.find_first_of("'\"{}+") != std::string_view::npos) continue;
    return std::string(text);
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(std::string_view source,
                                                                   const Tokenizer& tokenizer) {
  RETURN_IF_ERROR(CheckDelimiters(source));
  auto out = std::unique_ptr<ChatTemplate>(new ChatTemplate(tokenizer));
  const auto has = [&](std::string_view token) { return tokenizer.FindSpecial(token).has_value(); };
  if (source.empty()) {
    out->reason_ = "the model has no chat template";
  } else if (Contains(source, "<|im_start|>") && has("<|im_start|>") && has("<|im_end|>")) {
    out->format_ = Contains(source, "enable_thinking") ? ChatFormat::kQwen3 : ChatFormat::kChatMl;
    out->default_system_ = DefaultSystem(source);
  } else if (Contains(source, "<|start_header_id|>") && has("<|start_header_id|>") &&
             has("<|end_header_id|>") && has("<|eot_id|>")) {
    out->format_ = ChatFormat::kLlama3;
    out->llama3_bos_ = tokenizer.spec().bos.has_value() &&
                       (Contains(source, "bos_token") || Contains(source, "<|begin_of_text|>") ||
                        tokenizer.spec().add_bos);
  } else {
    out->reason_ = "the model's chat template is none of chatml, llama3, qwen3";
  }
  return out;
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

absl::Status ChatTemplate::AppendUser(std::string_view text, std::vector<int32_t>* ids) const {
  ASSIGN_OR_RETURN(const std::vector<int32_t> part, tokenizer_->Encode(text, EncodeOptions{}));
  ids->insert(ids->end(), part.begin(), part.end());
  return absl::OkStatus();
}

absl::Status ChatTemplate::AppendOpening(std::string_view system, std::vector<int32_t>* ids) const {
  const std::string prompt = system.empty() ? default_system_ : std::string(system);
  if (format_ == ChatFormat::kLlama3) {
    if (llama3_bos_) ids->push_back(*tokenizer_->spec().bos);
    if (prompt.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(AppendTemplate("<|start_header_id|>system<|end_header_id|>\n\n", ids));
    RETURN_IF_ERROR(AppendUser(Trim(prompt), ids));
    return AppendTemplate("<|eot_id|>", ids);
  }
  if (tokenizer_->spec().add_bos) ids->push_back(*tokenizer_->spec().bos);
  if (prompt.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(AppendTemplate("<|im_start|>system\n", ids));
  RETURN_IF_ERROR(AppendUser(prompt, ids));
  return AppendTemplate("<|im_end|>\n", ids);
}

absl::Status ChatTemplate::AppendUserHeader(std::vector<int32_t>* ids) const {
  return AppendTemplate(format_ == ChatFormat::kLlama3
                            ? "<|start_header_id|>user<|end_header_id|>\n\n"
                            : "<|im_start|>user\n",
                        ids);
}

absl::Status ChatTemplate::AppendClosing(std::vector<int32_t>* ids) const {
  switch (format_) {
    case ChatFormat::kLlama3:
      return AppendTemplate("<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n", ids);
    case ChatFormat::kQwen3:  // an empty thought: the answer begins at once
      return AppendTemplate("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", ids);
    default:
      return AppendTemplate("<|im_end|>\n<|im_start|>assistant\n", ids);
  }
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::Document(std::string_view system,
                                                            std::string_view document) const {
  std::vector<int32_t> ids;
  if (format_ == ChatFormat::kRaw) {
    EncodeOptions options;
    options.add_special = true;
    return tokenizer_->Encode(document, options);
  }
  RETURN_IF_ERROR(AppendOpening(system, &ids));
  RETURN_IF_ERROR(AppendUserHeader(&ids));
  // Llama 3's template trims what a user says; here its end is the question's.
  if (format_ == ChatFormat::kLlama3) document = TrimLeft(document);
  RETURN_IF_ERROR(AppendUser(document, &ids));
  return ids;
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::Question(std::string_view question) const {
  if (format_ == ChatFormat::kRaw) return tokenizer_->Encode(question, EncodeOptions{});
  std::vector<int32_t> ids;
  RETURN_IF_ERROR(AppendUser("\n\n", &ids));
  RETURN_IF_ERROR(
      AppendUser(format_ == ChatFormat::kLlama3 ? TrimRight(question) : question, &ids));
  RETURN_IF_ERROR(AppendClosing(&ids));
  return ids;
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::Prompt(std::string_view system,
                                                          std::string_view question) const {
  if (format_ == ChatFormat::kLlama3) question = TrimRight(question);
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, Document(system, question));
  if (format_ != ChatFormat::kRaw) RETURN_IF_ERROR(AppendClosing(&ids));
  return ids;
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::NextTurn(std::string_view question,
                                                            bool ended) const {
  if (format_ == ChatFormat::kRaw) return tokenizer_->Encode(question, EncodeOptions{});
  std::vector<int32_t> ids;
  if (format_ == ChatFormat::kLlama3) {
    if (!ended) RETURN_IF_ERROR(AppendTemplate("<|eot_id|>", &ids));
  } else {
    RETURN_IF_ERROR(AppendTemplate(ended ? "\n" : "<|im_end|>\n", &ids));
  }
  RETURN_IF_ERROR(AppendUserHeader(&ids));
  RETURN_IF_ERROR(AppendUser(format_ == ChatFormat::kLlama3 ? Trim(question) : question, &ids));
  RETURN_IF_ERROR(AppendClosing(&ids));
  return ids;
}

}  // namespace sparkv
