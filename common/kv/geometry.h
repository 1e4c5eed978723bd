// The shape of a model's KV cache and of the blocks that it is divided into.
//
//   column t   1024 consecutive tokens of a context (the last one shorter)
//   block (t,l) one column x one layer: all KV heads, K and V; the unit of plan, identity and store
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace sparkv {

inline constexpr uint32_t kColumnTokens = 1024;
inline constexpr uint32_t kMaxLayers = 1024;
inline constexpr uint32_t kMaxKvHeads = 1024;
inline constexpr uint32_t kMaxHeadDim = 1024;
inline constexpr uint32_t kMaxContextTokens = 1u << 22;

enum class KvDtype : uint8_t { kF16 = 1, kF32 = 2 };
inline constexpr uint32_t ElementBytes(KvDtype dtype) { return dtype == KvDtype::kF16 ? 2 : 4; }

struct KvGeometry {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  KvDtype dtype = KvDtype::kF16;

  // InvalidArgument unless every member is within 1..its limit.
  absl::Status Validate() const;
  // Values of K (or of V) in one layer of one token.
  uint32_t row() const { return kv_heads * head_dim; }
  // Bytes of K and V of all layers of one token.
  uint64_t token_bytes() const { return uint64_t{2} * layers * row() * ElementBytes(dtype); }
  bool operator==(const KvGeometry&) const = default;
  std::string ToString() const;
};

// Columns that `tokens` tokens need.
inline constexpr uint32_t ColumnCount(uint32_t tokens) {
  return (tokens + kColumnTokens - 1) / kColumnTokens;
}
// Tokens of column t in a context of `tokens` tokens; t < ColumnCount(tokens).
inline constexpr uint32_t ColumnTokens(uint32_t tokens, uint32_t t) {
  const uint32_t left = tokens - t * kColumnTokens;
  return left < kColumnTokens ? left : kColumnTokens;
}

}  // namespace sparkv
