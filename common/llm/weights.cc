#include "common/llm/weights.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace sparkv {
namespace {

std::string Shape(const GgufTensor& t) {
  std::string shape = absl::StrCat("[", t.dims[0]);
  for (uint32_t i = 1; i < t.n_dims; ++i) absl::StrAppend(&shape, ", ", t.dims[i]);
  return shape + "]";
}

class Binder {
 public:
  explicit Binder(const GgufReader& gguf) : gguf_(gguf) {}

  absl::Status Bind(const std::string& name, uint32_t rows, uint32_t cols, Matrix* out) const {
    const GgufTensor* t = gguf_.FindTensor(name);
    if (t == nullptr) return Missing(name, absl::StrCat("[", cols, ", ", rows, "]"));
    if (t->n_dims != 2 || t->dims[0] != cols || t->dims[1] != rows) {
      return Misshapen(*t, absl::StrCat("[", cols, ", ", rows, "]"));
    }
    const kernels::GgmlTypeInfo* info = kernels::FindGgmlType(static_cast<uint32_t>(t->type));
    if (info == nullptr || cols % info->block_values != 0) {
      return absl::DataLossError(
          absl::StrCat("tensor ", name, ": rows of ", cols, " values do not fit its type"));
    }
    const uint64_t row_bytes = kernels::RowBytes(*info, cols);
    if (t->data.size() != row_bytes * rows) {
      return absl::DataLossError(absl::StrCat("tensor ", name, " holds ", t->data.size(),
                                              " bytes, expected ", row_bytes * rows));
    }
    *out = {t->type, t->data.data(), rows, cols, row_bytes};
    return absl::OkStatus();
  }

  absl::Status Bind(const std::string& name, uint32_t n, std::vector<float>* out) const {
    const GgufTensor* t = gguf_.FindTensor(name);
    if (t == nullptr) return Missing(name, absl::StrCat("[", n, "]"));
    if (t->dims[0] != n || t->rows() != 1) return Misshapen(*t, absl::StrCat("[", n, "]"));
    out->resize(n);
    const absl::Status status = kernels::DequantizeRow(t->type, t->data.data(), out->data(), n);
    if (!status.ok()) {
      return absl::DataLossError(absl::StrCat("tensor ", name, ": ", status.message()));
    }
    for (const float value : *out) {
      if (!std::isfinite(value)) {
        return absl::DataLossError(
            absl::StrCat("tensor ", name, " holds a value that is not finite"));
      }
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Missing(const std::string& name, const std::string& shape) {
    return absl::DataLossError(absl::StrCat("tensor ", name, " ", shape, " is missing"));
  }
  static absl::Status Misshapen(const GgufTensor& t, const std::string& shape) {
    return absl::DataLossError(absl::StrCat("tensor ", std::string(t.name), " has shape ", Shape(t),
                                            ", expected ", shape));
  }
  const GgufReader& gguf_;
};

absl::Status BindLayer(const Binder& binder, const ModelConfig& c, uint32_t layer,
                       LayerWeights* w) {
  const std::string prefix = absl::StrCat("blk.", layer, ".");
  const uint32_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  RETURN_IF_ERROR(binder.Bind(prefix + "attn_norm.weight", c.d_model, &w->attention_norm));
  RETURN_IF_ERROR(binder.Bind(prefix + "ffn_norm.weight", c.d_model, &w->ffn_norm));
  RETURN_IF_ERROR(binder.Bind(prefix + "attn_q.weight", q, c.d_model, &w->q));
  RETURN_IF_ERROR(binder.Bind(prefix + "attn_k.weight", kv, c.d_model, &w->k));
  RETURN_IF_ERROR(binder.Bind(prefix + "attn_v.weight", kv, c.d_model, &w->v));
  RETURN_IF_ERROR(binder.Bind(prefix + "attn_output.weight", c.d_model, q, &w->o));
  RETURN_IF_ERROR(binder.Bind(prefix + "ffn_gate.weight", c.d_ff, c.d_model, &w->gate));
  RETURN_IF_ERROR(binder.Bind(prefix + "ffn_up.weight", c.d_ff, c.d_model, &w->up));
  RETURN_IF_ERROR(binder.Bind(prefix + "ffn_down.weight", c.d_model, c.d_ff, &w->down));
  if (c.qkv_bias) {
    RETURN_IF_ERROR(binder.Bind(prefix + "attn_q.bias", q, &w->q_bias));
    RETURN_IF_ERROR(binder.Bind(prefix + "attn_k.bias", kv, &w->k_bias));
    RETURN_IF_ERROR(binder.Bind(prefix + "attn_v.bias", kv, &w->v_bias));
  }
  if (c.qk_norm) {
    RETURN_IF_ERROR(binder.Bind(prefix + "attn_q_norm.weight", c.head_dim, &w->q_norm));
    RETURN_IF_ERROR(binder.Bind(prefix + "attn_k_norm.weight", c.head_dim, &w->k_norm));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Weights>> BindWeights(std::unique_ptr<GgufReader> gguf,
                                                     const ModelConfig& config) {
  auto weights = std::make_unique<Weights>();
  const Binder binder(*gguf);
  RETURN_IF_ERROR(
      binder.Bind("token_embd.weight", config.vocabulary, config.d_model, &weights->embedding));
  RETURN_IF_ERROR(binder.Bind("output_norm.weight", config.d_model, &weights->output_norm));
  weights->output = weights->embedding;
  if (gguf->FindTensor("output.weight") != nullptr) {
    RETURN_IF_ERROR(
        binder.Bind("output.weight", config.vocabulary, config.d_model, &weights->output));
  }
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    RETURN_IF_ERROR(BindLayer(binder, config, layer, &weights->layers.emplace_back()));
  }
  weights->gguf = std::move(gguf);
  return weights;
}

}  // namespace sparkv
