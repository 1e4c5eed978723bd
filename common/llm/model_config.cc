#include "common/llm/model_config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"

namespace sparkv {
namespace {

constexpr uint32_t kMaxWidth = 1u << 18;  // d_model and heads * head_dim
constexpr uint32_t kMaxFeedForward = 1u << 20;
constexpr uint32_t kMaxHeads = 4096;
constexpr uint32_t kMaxVocabulary = 1u << 24;

struct Architecture {
  const char* name;
  RopeKind rope;
  bool qkv_bias;
  bool qk_norm;
};

constexpr Architecture kArchitectures[] = {
    {"llama", RopeKind::kInterleaved, false, false},
    {"qwen2", RopeKind::kSplitHalf, true, false},
    {"qwen3", RopeKind::kSplitHalf, false, true},
};

absl::Status Range(const std::string& key, uint32_t got, uint32_t most) {
  if (got >= 1 && got <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("key ", key, " is ", got, ", allowed: 1..", most));
}

absl::Status ReadRope(const GgufReader& gguf, const std::string& prefix, uint32_t head_dim,
                      RopeConfig* rope) {
  const std::string dim_key = prefix + "rope.dimension_count";
  ASSIGN_OR_RETURN(rope->dim, gguf.GetU32Or(dim_key, head_dim));
  if (rope->dim == 0 || rope->dim % 2 != 0 || rope->dim > head_dim) {
    return absl::InvalidArgumentError(absl::StrCat("key ", dim_key, " is ", rope->dim,
                                                   ", allowed: even numbers in 2..", head_dim));
  }
  const std::string base_key = prefix + "rope.freq_base";
  ASSIGN_OR_RETURN(rope->base, gguf.GetDoubleOr(base_key, 10000.0));
  if (!(rope->base >= 1.0 && rope->base <= 1e12)) {
    return absl::InvalidArgumentError(
        absl::StrCat("key ", base_key, " is ", rope->base, ", allowed: 1..1e12"));
  }
  const std::string type_key = prefix + "rope.scaling.type";
  ASSIGN_OR_RETURN(const std::string_view type, gguf.GetStringOr(type_key, ""));
  std::string factor_key = prefix + "rope.scaling.factor";
  if (!gguf.Has(factor_key) && gguf.Has(prefix + "rope.scale_linear")) {
    factor_key = prefix + "rope.scale_linear";  // files from before 2024
  }
  ASSIGN_OR_RETURN(const double factor, gguf.GetDoubleOr(factor_key, 1.0));
  if (type == "linear" || (type.empty() && factor != 1.0)) {
    if (!(factor >= 1.0 && factor <= 1e6)) {
      return absl::InvalidArgumentError(
          absl::StrCat("key ", factor_key, " is ", factor, ", allowed: 1..1e6"));
    }
    rope->frequency_scale = 1.0 / factor;
  } else if (!type.empty() && type != "none" && type != "llama3") {
    return absl::UnimplementedError(
        absl::StrCat("key ", type_key, " is \"", std::string(type),
                     "\", supported: none, linear, and Llama 3's factors"));
  }
  if (const GgufTensor* t = gguf.FindTensor("rope_freqs.weight"); t != nullptr) {
    if (t->dims[0] != rope->dim / 2 || t->rows() != 1) {
      return absl::DataLossError(absl::StrCat("tensor rope_freqs.weight has ", t->dims[0], " x ",
                                              t->rows(), " values, expected ", rope->dim / 2));
    }
    rope->frequency_factors.resize(rope->dim / 2);
    RETURN_IF_ERROR(kernels::DequantizeRow(t->type, t->data.data(), rope->frequency_factors.data(),
                                           rope->frequency_factors.size()));
    for (const float f : rope->frequency_factors) {
      if (!(f > 0.0f && f <= 1e9f)) {
        return absl::DataLossError(
            absl::StrCat("tensor rope_freqs.weight holds ", f, ", allowed: above 0, at most 1e9"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReadHeads(const GgufReader& gguf, const std::string& prefix, ModelConfig* c) {
  const std::string heads_key = prefix + "attention.head_count";
  const std::string kv_key = prefix + "attention.head_count_kv";
  ASSIGN_OR_RETURN(c->heads, gguf.GetU32(heads_key));
  RETURN_IF_ERROR(Range(heads_key, c->heads, kMaxHeads));
  ASSIGN_OR_RETURN(c->kv_heads, gguf.GetU32Or(kv_key, c->heads));
  RETURN_IF_ERROR(Range(kv_key, c->kv_heads, kMaxKvHeads));
  if (c->heads % c->kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("key ", heads_key, " is ", c->heads,
                                                   ", expected a multiple of ", kv_key, " = ",
                                                   c->kv_heads));
  }
  const std::string dim_key = prefix + "attention.key_length";
  if (!gguf.Has(dim_key) && c->d_model % c->heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key ", heads_key, " is ", c->heads, ", expected a divisor of the width ", c->d_model));
  }
  ASSIGN_OR_RETURN(c->head_dim, gguf.GetU32Or(dim_key, c->d_model / c->heads));
  RETURN_IF_ERROR(Range(dim_key, c->head_dim, kMaxHeadDim));
  if (c->head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the head dimension is ", c->head_dim, ", expected an even number"));
  }
  const std::string value_key = prefix + "attention.value_length";
  ASSIGN_OR_RETURN(const uint32_t value_dim, gguf.GetU32Or(value_key, c->head_dim));
  if (value_dim != c->head_dim) {
    return absl::UnimplementedError(absl::StrCat("key ", value_key, " is ", value_dim,
                                                 ", supported: ", dim_key, " = ", c->head_dim));
  }
  return Range(heads_key + " x head dimension", c->heads * c->head_dim, kMaxWidth);
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const GgufReader& gguf) {
  ModelConfig c;
  ASSIGN_OR_RETURN(const std::string_view architecture, gguf.GetString("general.architecture"));
  const auto* known = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [&](const Architecture& a) { return a.name == architecture; });
  if (known == std::end(kArchitectures)) {
    return absl::UnimplementedError(absl::StrCat(
        "architecture ", std::string(architecture.substr(0, 64)), " is not supported; supported: ",
        absl::StrJoin(kArchitectures, ", ",
                      [](std::string* out, const Architecture& a) { out->append(a.name); })));
  }
  c.architecture = known->name;
  c.qkv_bias = known->qkv_bias;
  c.qk_norm = known->qk_norm;
  c.rope.kind = known->rope;
  ASSIGN_OR_RETURN(const std::string_view name, gguf.GetStringOr("general.name", ""));
  c.name = std::string(name.substr(0, 256));

  const std::string prefix = c.architecture + ".";
  const auto read = [&](const char* key, uint32_t most, uint32_t* out) -> absl::Status {
    ASSIGN_OR_RETURN(*out, gguf.GetU32(prefix + key));
    return Range(prefix + key, *out, most);
  };
  RETURN_IF_ERROR(read("block_count", kMaxLayers, &c.layers));
  RETURN_IF_ERROR(read("embedding_length", kMaxWidth, &c.d_model));
  RETURN_IF_ERROR(read("feed_forward_length", kMaxFeedForward, &c.d_ff));
  RETURN_IF_ERROR(read("context_length", UINT32_MAX, &c.context_length));
  c.context_length = std::min(c.context_length, kMaxContextTokens);
  RETURN_IF_ERROR(ReadHeads(gguf, prefix, &c));
  ASSIGN_OR_RETURN(const uint32_t experts, gguf.GetU32Or(prefix + "expert_count", 0));
  if (experts != 0) {
    return absl::UnimplementedError(absl::StrCat("key ", prefix, "expert_count is ", experts,
                                                 ": mixtures of experts are not supported"));
  }
  const std::string epsilon_key = prefix + "attention.layer_norm_rms_epsilon";
  ASSIGN_OR_RETURN(const double epsilon, gguf.GetDouble(epsilon_key));
  if (!(epsilon >= 0.0 && epsilon <= 0.1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("key ", epsilon_key, " is ", epsilon, ", allowed: 0..0.1"));
  }
  c.rms_epsilon = static_cast<float>(epsilon);
  RETURN_IF_ERROR(ReadRope(gguf, prefix, c.head_dim, &c.rope));

  const GgufTensor* embedding = gguf.FindTensor("token_embd.weight");
  if (embedding == nullptr) return absl::DataLossError("tensor token_embd.weight is missing");
  if (embedding->n_dims != 2 || embedding->dims[1] < 1 || embedding->dims[1] > kMaxVocabulary) {
    return absl::DataLossError(absl::StrCat("tensor token_embd.weight has ", embedding->dims[1],
                                            " rows, allowed: 1..", kMaxVocabulary));
  }
  c.vocabulary = static_cast<uint32_t>(embedding->dims[1]);
  return c;
}

}  // namespace sparkv
