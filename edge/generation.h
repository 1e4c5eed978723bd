// The decode loop: logits to tokens to text, until end of text, a stop string or the token limit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/cancel.h"
#include "common/kv/kv_cache.h"
#include "common/llm/decoder.h"
#include "common/llm/sampler.h"
#include "edge/stop_strings.h"

namespace sparkv {

struct GenerationOptions {
  uint32_t max_tokens = 256;  // at least 1
  uint32_t logprobs = 0;      // best tokens to report at each step
  bool ignore_eos = false;
  SamplingOptions sampling;  // valid
};

// One sampled token. `text` became certain with it (stop strings hold text back) and may be empty.
struct GeneratedToken {
  Sampled sampled;
  std::string text;
};

struct GenerationOutcome {
  uint32_t tokens = 0;         // sampled, an end-of-text token included
  std::string finish_reason;   // "stop", "length"
  bool out_of_memory = false;  // "length" because the KV memory budget has no further page
  absl::Duration first_token;  // Clock time when the first token was sampled
  double tokens_per_s = 0;     // decode steps after the first token; 0 for none
};

struct GenerationHooks {
  // Called for each token on the calling thread.
  std::function<void(GeneratedToken)> token;
  // Called before the sequence takes a new page: makes room for it, or says that there is none.
  std::function<absl::Status()> make_room;
};

// Samples from `logits` [vocabulary] (the last row of a prefill), then decodes. *ids holds the
// sequence so far and receives the sampled ids; the cache ends with one token less than *ids, the
// last one not being decoded. Cancelled between two steps. Runs on the engine thread.
absl::StatusOr<GenerationOutcome> Generate(Decoder* decoder, KvCache* cache,
                                           std::vector<float>* logits, std::vector<int32_t>* ids,
                                           const GenerationOptions& options, StopStrings stops,
                                           const CancelToken& cancel, const GenerationHooks& hooks);

}  // namespace sparkv
