// What the server needs of a model. The real one is llm_prefiller.h; tests use a deterministic
// fake, so that store, precompute and service run without LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/cancel.h"
#include "common/base/sha256.h"
#include "common/codec/residual.h"
#include "common/kv/kv_cache.h"

namespace sparkv {

class Prefiller {
 public:
  virtual ~Prefiller() = default;

  // Constant and thread-safe.
  virtual std::string model_name() const = 0;
  virtual Digest fingerprint() const = 0;
  virtual KvGeometry geometry() const = 0;  // dtype f16: what the container stores
  virtual uint32_t vocabulary() const = 0;
  virtual uint32_t context_length() const = 0;
  // What codecs that predict from the token embedding need; its functions live as long as someone
  // holds them, the prefiller or not.
  virtual TokenEmbedding token_embedding() const = 0;
  // The ids of a document as a stored context has them: within the chat template's opening, or
  // plain with `raw`. Thread-safe. InvalidArgument for text that gives no token or is too long;
  // Cancelled.
  virtual absl::StatusOr<std::vector<int32_t>> Tokenize(std::string_view text, bool raw,
                                                        std::string_view system,
                                                        const CancelledFn& cancelled) const = 0;

  // Called by one thread only. Runs tokens at positions [cache->tokens(), + size) and extends the
  // cache; progress(tokens done of this call) between steps. Cancelled leaves the cache as it was.
  // active_blocks becomes [layers][kv_heads], the key blocks that hold 98 % of the tokens'
  // attention (Decoder::Prefill); 0: not measured.
  virtual absl::Status Prefill(std::span<const int32_t> tokens, KvCache* cache,
                               const CancelToken& cancel,
                               const std::function<void(uint32_t)>& progress,
                               std::vector<uint16_t>* active_blocks) = 0;
};

}  // namespace sparkv
