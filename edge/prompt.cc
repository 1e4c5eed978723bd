#include "edge/prompt.h"

#include "common/base/status.h"

namespace sparkv {
namespace {

// Plain tokens, with the BOS that the vocabulary asks for at the start of a sequence and never its
// EOS.
absl::StatusOr<std::vector<int32_t>> RawIds(const Model& model, const std::string& text,
                                            bool begins) {
  const Tokenizer& tokenizer = model.tokenizer();
  const VocabSpec& spec = tokenizer.spec();
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.Encode(text, {}));
  if (begins && spec.add_bos && spec.bos) ids.insert(ids.begin(), *spec.bos);
  return ids;
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ContextIds(const Model& model, const std::string& text,
                                                bool raw, const std::string& system) {
  if (text.empty()) return absl::InvalidArgumentError("text: the document is empty");
  if (raw) return RawIds(model, text, true);
  return model.chat_template().Document(system, text);
}

absl::StatusOr<std::vector<int32_t>> QuestionIds(const Model& model, const std::string& question,
                                                 const QuestionPlace& place) {
  if (question.empty() && !place.raw) return absl::InvalidArgumentError("question: it is empty");
  const bool begins = !place.after_context && place.turns.empty();
  if (question.empty() && begins)
    return absl::InvalidArgumentError("question: the prompt is empty");
  if (place.raw) return RawIds(model, question, begins);
  const ChatTemplate& chat = model.chat_template();
  if (!place.turns.empty()) {
    return chat.NextTurn(question, model.tokenizer().IsEndOfGeneration(place.turns.back()));
  }
  return place.after_context ? chat.Question(question) : chat.Prompt("", question);
}

}  // namespace sparkv
