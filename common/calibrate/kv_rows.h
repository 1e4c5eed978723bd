// K and V of a text as a profile sees them: before the rotary embedding, without the attention
// sinks.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/thread_pool.h"
#include "common/calibrate/fidelity.h"
#include "common/llm/model_config.h"
#include "common/llm/rope_table.h"

namespace sparkv {

// Of a context's first tokens: they travel as they are, so nothing is learnt from them.
inline constexpr uint32_t kCalibrationSinkTokens = 4;

// Thread-compatible.
class KvRows {
 public:
  // Positions below `context`. Both outlive it.
  KvRows(const ModelConfig& config, uint32_t context, ThreadPool* pool);

  uint32_t row() const { return row_; }        // values of a token's K, or V
  uint32_t width() const { return 2 * row_; }  // of both
  // [tokens][width]: K before RoPE, then V, of the probe's tokens from kCalibrationSinkTokens on.
  std::vector<float> Load(const FidelityProbe& probe, uint32_t layer) const;
  // RoPE of the key in k [row] of the token at `position`.
  void Rotate(uint32_t position, float* k) const;

 private:
  const ModelConfig& config_;
  RopeTable rope_;
  ThreadPool* const pool_;
  const uint32_t row_;
};

}  // namespace sparkv
