// The architecture of a decoder-only transformer, as far as prefill and decode need it. A further
// architecture is a row in model_config.cc, not a class.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/gguf/gguf_reader.h"
#include "common/kv/geometry.h"

namespace sparkv {

// Rotary embedding. kInterleaved rotates pairs (2i, 2i+1), kSplitHalf pairs (i, i + dim/2).
enum class RopeKind : uint8_t { kInterleaved, kSplitHalf };

struct RopeConfig {
  RopeKind kind = RopeKind::kInterleaved;
  uint32_t dim = 0;  // rotated values of a head, even, <= head_dim
  double base = 10000.0;
  double frequency_scale = 1.0;          // linear scaling: 1 / factor
  std::vector<float> frequency_factors;  // [dim/2] divisors (Llama 3.x); empty: all 1
};

struct ModelConfig {
  std::string architecture;  // "llama", "qwen2", "qwen3"
  std::string name;
  uint32_t layers = 0;
  uint32_t d_model = 0;
  uint32_t d_ff = 0;
  uint32_t heads = 0;  // query heads, a multiple of kv_heads
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t vocabulary = 0;
  uint32_t context_length = 0;
  float rms_epsilon = 1e-5f;
  bool qkv_bias = false;  // qwen2
  bool qk_norm = false;   // qwen3: RMS norm of each q and k head before RoPE
  RopeConfig rope;

  KvGeometry Geometry(KvDtype dtype) const { return {layers, kv_heads, head_dim, dtype}; }
};

// Reads and checks the configuration. Unimplemented "architecture X is not supported; supported:
// ..." for another architecture; InvalidArgument naming the key for a value out of range.
absl::StatusOr<ModelConfig> ReadModelConfig(const GgufReader& gguf);

}  // namespace sparkv
