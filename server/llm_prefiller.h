// A Prefiller over the model engine.
#pragma once

#include <memory>

#include "common/llm/decoder.h"
#include "server/prefiller.h"

namespace sparkv {

class LlmPrefiller : public Prefiller {
 public:
  LlmPrefiller(std::shared_ptr<const Model> model, const DecoderOptions& options);

  std::string model_name() const override;
  Digest fingerprint() const override;
  KvGeometry geometry() const override;
  uint32_t vocabulary() const override;
  uint32_t context_length() const override;
  TokenEmbedding token_embedding() const override;
  absl::StatusOr<std::vector<int32_t>> Tokenize(std::string_view text, bool raw,
                                                std::string_view system,
                                                const CancelledFn& cancelled) const override;
  absl::Status Prefill(std::span<const int32_t> tokens, KvCache* cache, const CancelToken& cancel,
                       const std::function<void(uint32_t)>& progress,
                       std::vector<uint16_t>* active_blocks) override;

 private:
  const std::shared_ptr<const Model> model_;
  const DecoderOptions options_;
  std::unique_ptr<Decoder> decoder_;  // made by the thread that prefills
};

}  // namespace sparkv
