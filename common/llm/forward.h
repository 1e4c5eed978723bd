// What the two ways of running a layer share: dense (many rows: GEMM) and small (few rows:
// matrix-vector); both read the weights as stored. Internal to the decoder.
#pragma once

#include <cstdint>

#include "common/llm/model_config.h"
#include "common/llm/rope_table.h"
#include "common/llm/weights.h"
#include "common/llm/work_team.h"

namespace sparkv {

// Rows from which the dense way is the faster one.
inline constexpr uint32_t kDenseRows = 16;

struct ForwardContext {
  ForwardContext(const ModelConfig& config, const Weights& weights, int threads)
      : config(config), weights(weights), team(threads), rope(config.rope) {}

  const ModelConfig& config;
  const Weights& weights;
  WorkTeam team;
  RopeTable rope;

  uint32_t group() const { return config.heads / config.kv_heads; }
  uint32_t q_width() const { return config.heads * config.head_dim; }
  uint32_t kv_width() const { return config.kv_heads * config.head_dim; }
};

}  // namespace sparkv
