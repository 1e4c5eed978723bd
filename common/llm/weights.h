// The tensors of a model, checked against its configuration and left where the file is mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/gguf/gguf_reader.h"
#include "common/llm/model_config.h"
#include "kernels/gguf_dequant.h"

namespace sparkv {

// y = W x with W [rows][cols] as stored. Points into the mapped file.
struct Matrix {
  kernels::GgmlType type = kernels::GgmlType::kF32;
  const uint8_t* data = nullptr;
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint64_t row_bytes = 0;

  const uint8_t* Row(uint64_t r) const { return data + r * row_bytes; }
};

struct LayerWeights {
  std::vector<float> attention_norm;          // [d_model]
  std::vector<float> ffn_norm;                // [d_model]
  Matrix q, k, v;                             // [heads or kv_heads * head_dim][d_model]
  Matrix o;                                   // [d_model][heads * head_dim]
  Matrix gate, up;                            // [d_ff][d_model]
  Matrix down;                                // [d_model][d_ff]
  std::vector<float> q_bias, k_bias, v_bias;  // empty unless qkv_bias
  std::vector<float> q_norm, k_norm;          // [head_dim], empty unless qk_norm
};

struct Weights {
  std::unique_ptr<GgufReader> gguf;  // owns the mapping
  Matrix embedding;                  // [vocabulary][d_model]
  Matrix output;                     // the embedding when the file ties them
  std::vector<float> output_norm;    // [d_model]
  std::vector<LayerWeights> layers;
};

// Finds and checks every tensor; takes over the reader. DataLoss naming the tensor, what was got
// and expected, for a missing or misshapen one.
absl::StatusOr<std::unique_ptr<Weights>> BindWeights(std::unique_ptr<GgufReader> gguf,
                                                     const ModelConfig& config);

}  // namespace sparkv
