#include "server/llm_prefiller.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/llm/token_rows.h"
#include "common/llm/tokenizer.h"
#include "common/rpc/wire.h"

namespace sparkv {

static_assert(kMaxRequestTextBytes == kMaxEncodeBytes);

LlmPrefiller::LlmPrefiller(std::shared_ptr<const Model> model, const DecoderOptions& options)
    : model_(std::move(model)), options_(options) {}

std::string LlmPrefiller::model_name() const { return model_->config().name; }
Digest LlmPrefiller::fingerprint() const { return model_->fingerprint(); }
KvGeometry LlmPrefiller::geometry() const { return model_->config().Geometry(KvDtype::kF16); }
uint32_t LlmPrefiller::vocabulary() const { return model_->config().vocabulary; }
uint32_t LlmPrefiller::context_length() const { return model_->config().context_length; }

TokenEmbedding LlmPrefiller::token_embedding() const {
  return {.width = model_->config().d_model,
          .rows = [model = model_](std::span<const int32_t> tokens, float* out) {
            return TokenRows(*model, tokens, out);
          }};
}

absl::StatusOr<std::vector<int32_t>> LlmPrefiller::Tokenize(std::string_view text, bool raw,
                                                            std::string_view system,
                                                            const CancelledFn& cancelled) const {
  for (const auto& [name, part] : {std::pair{"text", text}, std::pair{"system", system}}) {
    if (raw && part.data() == system.data()) continue;  // not used
    const size_t least = model_->tokenizer().MinTokens(part);
    if (least > context_length()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", part.size(), " bytes are at least ", least,
                       " tokens; the model takes ", context_length()));
    }
  }
  std::vector<int32_t> ids;
  if (raw) {
    ASSIGN_OR_RETURN(ids,
                     model_->tokenizer().Encode(text, {.add_bos = true, .cancelled = cancelled}));
  } else {
    ASSIGN_OR_RETURN(ids, model_->chat_template().Document(system, text, cancelled));
  }
  if (ids.empty()) return absl::InvalidArgumentError("text: gives no token");
  return ids;
}

absl::Status LlmPrefiller::Prefill(std::span<const int32_t> tokens, KvCache* cache,
                                   const CancelToken& cancel,
                                   const std::function<void(uint32_t)>& progress,
                                   std::vector<uint16_t>* active_blocks) {
  if (decoder_ == nullptr) decoder_ = std::make_unique<Decoder>(model_, options_);
  return decoder_->Prefill(tokens, cache, /*logits=*/nullptr, cancel, progress, active_blocks);
}

}  // namespace sparkv
