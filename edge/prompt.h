// The prompt layout: a stored context is the chat template's opening and the document; what follows
// it is tokenized apart, so the ids of a context never depend on the question. Raw contexts and raw
// questions are plain tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/llm/model.h"

namespace sparkv {

// Ids of a stored context. InvalidArgument for an empty document, FailedPrecondition for text that
// no tokens of the model's context length can hold, Cancelled. `system` is ignored when raw.
absl::StatusOr<std::vector<int32_t>> ContextIds(const Model& model, const std::string& text,
                                                bool raw, const std::string& system,
                                                const CancelledFn& cancelled);

struct QuestionPlace {
  bool after_context = false;  // else the ids begin the sequence
  bool raw = false;            // a raw question, or one after a raw context
  // Chat: the ids of earlier turns that the sequence has after the context (generated ones
  // included, never re-tokenized text).
  std::span<const int32_t> turns;
};

// Ids that follow the context and the earlier turns. InvalidArgument for a question that gives no
// ids at all at the start of a sequence; an empty raw question after a context is allowed and
// empty. FailedPrecondition and Cancelled as above.
absl::StatusOr<std::vector<int32_t>> QuestionIds(const Model& model, const std::string& question,
                                                 const QuestionPlace& place,
                                                 const CancelledFn& cancelled);

}  // namespace sparkv
