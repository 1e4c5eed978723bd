// BlockCompute over the real model.
#pragma once

#include <functional>

#include "common/llm/decoder.h"
#include "edge/load/ports.h"

namespace sparkv {

// The decoder must outlive it; its thread rule applies.
class DecoderCompute final : public BlockCompute {
 public:
  explicit DecoderCompute(Decoder* decoder) : decoder_(decoder) {}
  uint32_t d_model() const override { return decoder_->model().config().d_model; }
  absl::Status Embed(std::span<const int32_t> tokens, float* hidden) override {
    return decoder_->Embed(tokens, hidden);
  }
  absl::Status Project(uint32_t layer, const float* hidden, uint32_t begin, uint32_t n,
                       KvCache* cache) override {
    return decoder_->Project(layer, hidden, begin, n, cache);
  }
  absl::Status Attend(uint32_t layer, float* hidden, uint32_t begin, uint32_t n,
                      const KvCache& cache, uint32_t first_row) override {
    return decoder_->Attend(layer, hidden, begin, n, cache, first_row);
  }
  void ParallelRows(uint32_t rows, uint32_t unit,
                    const std::function<void(uint32_t, uint32_t)>& fn) override {
    decoder_->ParallelRows(rows, unit, fn);
  }

 private:
  Decoder* decoder_;
};

}  // namespace sparkv
