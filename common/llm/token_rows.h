// Rows of the token embedding, for codecs that predict from them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "common/llm/model.h"

namespace sparkv {

// rows [tokens][d_model]. Thread-safe. InvalidArgument for an id outside the vocabulary.
absl::Status TokenRows(const Model& model, std::span<const int32_t> tokens, float* rows);

}  // namespace sparkv
