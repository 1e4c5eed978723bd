// Codecs whose blocks are finished in two steps: entropy decoding needs nothing but the bytes, so
// blocks may come in any order; FINAL(t, l) then adds what can be predicted from the token ids and
// from the block (t, l - 1), streamed or computed here. So a column is finished from the bottom up,
// which is the order in which a query consumes it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/codec/codec.h"

namespace sparkv {

// The model's token embedding; `rows` may be null where a profile does not predict from it.
struct TokenEmbedding {
  uint32_t width = 0;
  // out [tokens][width]. Thread-safe. InvalidArgument for an id outside the vocabulary.
  std::function<absl::Status(std::span<const int32_t> tokens, float* out)> rows;
};

// Takes finished rows [row, row + n) of a block: k and v are [n][kv_heads * head_dim] f32 with
// `stride` floats between rows, K after RoPE, within the f16 range. Called for disjoint ranges,
// from several threads.
class RowSink {
 public:
  virtual ~RowSink() = default;
  virtual void Write(uint32_t row, uint32_t n, const float* k, const float* v, size_t stride) = 0;
};

// Entropy-decoded planes of one block.
struct BlockResidual {
  uint32_t planes = 0;
  std::vector<uint16_t> exact_tokens;  // ascending, within the block
  std::vector<uint16_t> exact;         // [2][kv_heads][exact_tokens][head_dim] f16 bits
  std::vector<int16_t> symbols;        // [2 * kv_heads * head_dim][tokens]
  size_t bytes() const { return 2 * (exact_tokens.size() + exact.size() + symbols.size()); }
};

// A column on its way from layer to layer. One block after the other, rows in several threads at
// once.
class ColumnChain {
 public:
  virtual ~ColumnChain() = default;
};

// Thread-safe but for one ColumnChain being in one call or several on disjoint rows.
class ResidualDecoder {
 public:
  virtual ~ResidualDecoder() = default;
  virtual const CodecInfo& info() const = 0;
  // Whether Finish needs the block below.
  virtual bool predicts() const = 0;

  // Step 1. Errors as of BlockDecoder::DecodeBlock, and InvalidArgument for a block that the
  // profile is not for. Layer 0, which is computed, gives an empty result.
  virtual absl::StatusOr<BlockResidual> Read(
      uint32_t layer, const BlockShape& shape,
      std::span<const std::span<const uint8_t>> planes) const = 0;

  // Begins a column: first_token is its position in the context. Before the first Finish, Restart
  // must have said what layer 0 holds.
  virtual absl::StatusOr<std::unique_ptr<ColumnChain>> Begin(
      uint32_t first_token, std::span<const int32_t> tokens) const = 0;
  // Rows [begin, begin + n) of some layer were computed, not streamed: k (after RoPE), v [n][row]
  // f32, `stride` floats apart. What is finished next is the layer above.
  virtual void Restart(ColumnChain* chain, uint32_t begin, uint32_t n, const float* k,
                       const float* v, size_t stride) const = 0;
  // Step 2, FINAL: rows [begin, end) of `layer` >= 1, the layer above the chain's. `begin` must be
  // a multiple of kFinishRows.
  virtual absl::Status Finish(const BlockResidual& residual, uint32_t layer, uint32_t begin,
                              uint32_t end, ColumnChain* chain, RowSink* sink) const = 0;
};

inline constexpr uint32_t kFinishRows = 256;  // rows that are finished together

}  // namespace sparkv
