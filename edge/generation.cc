#include "edge/generation.h"

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/llm/detokenizer.h"

namespace sparkv {

absl::StatusOr<GenerationOutcome> Generate(Decoder* decoder, KvCache* cache,
                                           std::vector<float>* logits, std::vector<int32_t>* ids,
                                           const GenerationOptions& options, StopStrings stops,
                                           const CancelToken& cancel,
                                           const GenerationHooks& hooks) {
  ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(options.sampling));
  const Tokenizer& tokenizer = decoder->model().tokenizer();
  Detokenizer text(tokenizer);
  GenerationOutcome outcome;
  while (true) {
    RETURN_IF_ERROR(cancel.Check());
    GeneratedToken token{.sampled = sampler.Sample(*logits, *ids, options.logprobs)};
    const int32_t id = token.sampled.id;
    ids->push_back(id);
    if (++outcome.tokens == 1) outcome.first_token = RealClock().Now();
    const bool end_of_text = !options.ignore_eos && tokenizer.IsEndOfGeneration(id);
    if (!end_of_text) token.text = stops.Push(text.Push(id));
    bool last = true;
    if (stops.stopped() || end_of_text) {
      outcome.finish_reason = "stop";
    } else if (outcome.tokens >= options.max_tokens) {
      outcome.finish_reason = "length";
    } else if (cache->tokens() % kPageTokens == 0 && hooks.make_room && !hooks.make_room().ok()) {
      outcome.finish_reason = "length";
      outcome.out_of_memory = true;
    } else {
      last = false;
    }
    if (last && !stops.stopped()) {
      // What was held back as a possible stop string or an unfinished character comes with the last
      // token.
      token.text += stops.Push(text.Finish());
      token.text += stops.Flush();
    }
    hooks.token(std::move(token));
    if (last) break;
    RETURN_IF_ERROR(decoder->DecodeOne(id, cache, logits->data()));
  }
  const double seconds = absl::ToDoubleSeconds(RealClock().Now() - outcome.first_token);
  if (outcome.tokens > 1 && seconds > 0) outcome.tokens_per_s = (outcome.tokens - 1) / seconds;
  return outcome;
}

}  // namespace sparkv
