// How far a context's KV cache that went through a codec is from the exact one, by what the model
// then says: KL of its distribution for the tokens that really follow, and for tokens that re-read
// a passage of the context (which needs single keys and values, not averages).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv/kv_cache.h"
#include "common/llm/decoder.h"

namespace sparkv {

struct Fidelity {
  double kl = 0;         // mean KL(exact || candidate) of the tokens that follow, nats
  double copy_kl = 0;    // of the tokens that re-read a passage
  double top1 = 0;       // share of both where the likeliest token is the same
  double delta_nll = 0;  // change of the following tokens' mean negative log-likelihood, nats
};

// Runs on the decoder's thread.
class FidelityProbe {
 public:
  static constexpr uint32_t kFollowing = 128;
  static constexpr uint32_t kPassage = 48;      // re-read, from the context's first third on
  static constexpr uint32_t kPassageSkip = 16;  // of these, until the model knows what it reads
  static constexpr uint32_t kTokens = kFollowing + kPassage;

  // Prefills the first `context` tokens of `tokens`, which must hold kFollowing more. The pool must
  // have room for context + kTokens tokens, twice with Measure.
  static absl::StatusOr<FidelityProbe> Create(Decoder* decoder, std::shared_ptr<KvPagePool> pool,
                                              std::span<const int32_t> tokens, uint32_t context);

  std::span<const int32_t> context() const { return {tokens_.data(), context_}; }
  // The exact cache, `context` tokens.
  const KvCache& exact() const { return *exact_; }

  // `candidate` holds the context's tokens and is left as it was.
  absl::StatusOr<Fidelity> Measure(KvCache* candidate) const;

 private:
  FidelityProbe() = default;
  // Log-probabilities [kTokens][vocabulary] of the probe's tokens after the cache.
  absl::StatusOr<std::vector<float>> LogProbabilities(KvCache* cache) const;

  Decoder* decoder_ = nullptr;
  std::vector<int32_t> tokens_;  // context, following, passage
  uint32_t context_ = 0;
  std::unique_ptr<KvCache> exact_;
  std::vector<float> log_p_;
};

}  // namespace sparkv
