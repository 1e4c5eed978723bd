#include "edge/prompt.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace sparkv {
namespace {

absl::Status CheckFits(const Model& model, const std::string& text, const char* what) {
  const size_t least = model.tokenizer().MinTokens(text);
  if (least <= model.config().context_length) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", text.size(), " bytes are at least ",
                                                    least, " tokens; the model takes ",
                                                    model.config().context_length));
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ContextIds(const Model& model, const std::string& text,
                                                bool raw, const std::string& system,
                                                const CancelledFn& cancelled) {
  if (text.empty()) return absl::InvalidArgumentError("text: the document is empty");
  RETURN_IF_ERROR(CheckFits(model, text, "text"));
  if (raw) return model.tokenizer().Encode(text, {.add_bos = true, .cancelled = cancelled});
  RETURN_IF_ERROR(CheckFits(model, system, "system"));
  return model.chat_template().Document(system, text, cancelled);
}

absl::StatusOr<std::vector<int32_t>> QuestionIds(const Model& model, const std::string& question,
                                                 const QuestionPlace& place,
                                                 const CancelledFn& cancelled) {
  if (question.empty() && !place.raw) return absl::InvalidArgumentError("question: it is empty");
  const bool begins = !place.after_context && place.turns.empty();
  if (question.empty() && begins)
    return absl::InvalidArgumentError("question: the prompt is empty");
  RETURN_IF_ERROR(CheckFits(model, question, "question"));
  if (place.raw)
    return model.tokenizer().Encode(question, {.add_bos = begins, .cancelled = cancelled});
  const ChatTemplate& chat = model.chat_template();
  if (!place.turns.empty()) {
    return chat.NextTurn(question, model.tokenizer().IsEndOfGeneration(place.turns.back()),
                         cancelled);
  }
  return place.after_context ? chat.Question(question, cancelled)
                             : chat.Prompt("", question, cancelled);
}

}  // namespace sparkv
