// Forward passes over a paged KV cache, layer by layer, so that a loader can mix computed and
// streamed blocks.
//
// The events of a load (names as in the planner):
//   PROJ(t, l)   hidden(t, l-1) -> K, V rows of layer l                     Project
//   ATTN(t, l)   hidden(t, l-1), K, V of layer l up to t -> hidden(t, l)    Attend
//   QUERY(l)     both, for the query's own rows
// Hidden rows are f32 [n][d_model], owned by the caller.
//
// One thread makes all calls of all Decoders in a process (LibTorch keeps an OpenMP pool per
// calling thread).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/base/cancel.h"
#include "common/kv/kv_cache.h"
#include "common/llm/attention_options.h"
#include "common/llm/attention_work.h"
#include "common/llm/model.h"

namespace sparkv {

struct DecoderOptions {
  int threads = 0;             // 0: the machine's cores
  uint32_t step_tokens = 256;  // rows of one layer between two cancellation points of Prefill at
                               // most, 1..kColumnTokens
  AttentionOptions attention;  // of rows that go 16 or more at a time
};

class Decoder {
 public:
  Decoder(std::shared_ptr<const Model> model, const DecoderOptions& options);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const Model& model() const { return *model_; }
  int threads() const;

  // Rows at positions from here on, the question's, attend densely whatever the options.
  // UINT32_MAX, the default: none of them.
  void set_dense_from(uint32_t position);
  // Counts since the decoder was made.
  const AttentionWork& attention_work() const;

  // Rows of one layer, behind so much history, that take about a tenth of a second on two cores:
  // the work between two cancellation points. kDenseRows..kColumnTokens.
  uint32_t StepRows(uint32_t history) const;

  // hidden [n][d_model] = embeddings. InvalidArgument for an id outside the vocabulary.
  absl::Status Embed(std::span<const int32_t> tokens, float* hidden);

  // Writes K and V rows [begin, begin + n) of `layer` from hidden (the layer's input). The cache
  // must reach begin + n.
  absl::Status Project(uint32_t layer, const float* hidden, uint32_t begin, uint32_t n,
                       KvCache* cache);

  // hidden = the layer's output for rows [begin, begin + n), causal attention over K, V rows [0,
  // begin + n) of the cache, which must be there. With first_row > 0 only rows [first_row, n) are
  // computed; the others keep their input.
  absl::Status Attend(uint32_t layer, float* hidden, uint32_t begin, uint32_t n,
                      const KvCache& cache, uint32_t first_row = 0);

  // q [n][heads * head_dim] = the queries of hidden rows (the layer's input) before the rotary
  // embedding. For calibration.
  absl::Status Queries(uint32_t layer, const float* hidden, uint32_t n, float* q);

  // Runs fn on disjoint ranges that cover [0, rows), in all of the engine's threads; ranges begin
  // at multiples of `unit` >= 1. For work between the calls above, which use the same threads.
  void ParallelRows(uint32_t rows, uint32_t unit,
                    const std::function<void(uint32_t begin, uint32_t end)>& fn);

  // logits [rows][vocabulary] of hidden rows [rows][d_model] that left the last layer (final norm
  // and output matrix).
  absl::Status Logits(const float* hidden, uint32_t rows, float* logits);

  // Runs tokens at positions [cache->tokens(), + tokens.size()) through all layers and extends the
  // cache. logits, unless null, is [vocabulary] of the last token. progress(tokens done) is called
  // between steps and counts a layer's work as its share of the tokens. Cancelled, and the cache
  // then holds exactly the tokens it held before; every other error likewise: InvalidArgument (no
  // tokens, an id outside the vocabulary, more than the model's context), ResourceExhausted.
  // active_blocks, unless null, becomes [layers][kv_heads]: the key blocks that hold kMeasuredMass
  // of the attention (kernels/block_select.h), mean over query blocks and the query heads of the
  // group, rounded up; 0 where no layer was attended densely enough to tell: the last one without
  // logits, and steps of fewer than 16 rows. It costs some 2 % of the attention.
  absl::Status Prefill(std::span<const int32_t> tokens, KvCache* cache, float* logits,
                       const CancelToken& cancel = {},
                       const std::function<void(uint32_t)>& progress = nullptr,
                       std::vector<uint16_t>* active_blocks = nullptr);

  // One token at position cache->tokens(); logits [vocabulary].
  absl::Status DecodeOne(int32_t token, KvCache* cache, float* logits);

 private:
  struct Impl;
  absl::Status Check(uint32_t layer, uint32_t begin, uint32_t n, const KvCache& cache) const;
  // Hidden rows of the last layer are not made, but for the last one when asked for.
  absl::Status RunLayers(uint32_t begin, uint32_t n, KvCache* cache, bool last_row,
                         const CancelToken& cancel, const std::function<void(uint32_t)>& layer_done,
                         std::vector<ActiveBlocksSum>* measured);

  std::shared_ptr<const Model> model_;
  DecoderOptions options_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sparkv
