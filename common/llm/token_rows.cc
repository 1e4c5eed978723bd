#include "common/llm/token_rows.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/llm/weights.h"

namespace sparkv {

absl::Status TokenRows(const Model& model, std::span<const int32_t> tokens, float* rows) {
  const Matrix& embedding = model.weights().embedding;
  for (const int32_t id : tokens) {
    if (id < 0 || static_cast<uint32_t>(id) >= embedding.rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("token id ", id, ", allowed: 0..", embedding.rows - 1));
    }
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    RETURN_IF_ERROR(kernels::DequantizeRow(embedding.type,
                                           embedding.Row(static_cast<uint32_t>(tokens[i])),
                                           rows + i * embedding.cols, embedding.cols));
  }
  return absl::OkStatus();
}

}  // namespace sparkv
