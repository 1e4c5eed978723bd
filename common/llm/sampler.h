// Turns logits into a token. Order of the filters: repetition penalty, top-k, top-p, min-p,
// temperature.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace sparkv {

struct SamplingOptions {
  float temperature = 0.0f;         // 0: greedy (lowest id on ties); at most 100
  uint32_t top_k = 0;               // 0: off
  float top_p = 1.0f;               // (0, 1]; 1: off
  float min_p = 0.0f;               // [0, 1); 0: off
  float repetition_penalty = 1.0f;  // (0, 10]; 1: off; over the whole sequence so far
  uint64_t seed = 0;                // used as given

  // InvalidArgument naming the field, what was got and what is allowed (NaN included).
  absl::Status Validate() const;
};

struct TokenLogprob {
  int32_t id;
  float logprob;  // natural logarithm of the softmax of the unmodified logits
};

struct Sampled {
  int32_t id;
  float logprob;
  std::vector<TokenLogprob> top;  // best first
};

// Same options, seed and logits give the same tokens on every machine. Thread-compatible.
class Sampler {
 public:
  static absl::StatusOr<Sampler> Create(const SamplingOptions& options);
  // `history`: the tokens so far, for the repetition penalty. `top`: how many of the best to
  // report.
  Sampled Sample(std::span<const float> logits, std::span<const int32_t> history, uint32_t top = 0);

 private:
  explicit Sampler(const SamplingOptions& options) : options_(options), rng_(options.seed) {}
  SamplingOptions options_;
  std::mt19937_64 rng_;
};

}  // namespace sparkv
