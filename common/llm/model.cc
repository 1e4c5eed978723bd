#include "common/llm/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/llm/fingerprint.h"
#include "common/llm/weights.h"

namespace sparkv {

Model::Model() = default;
Model::~Model() = default;

absl::StatusOr<std::shared_ptr<const Model>> Model::Load(const std::string& gguf_path) {
  ASSIGN_OR_RETURN(std::unique_ptr<GgufReader> gguf, GgufReader::Open(gguf_path));
  const std::shared_ptr<Model> model(new Model);
  model->path_ = gguf_path;
  ASSIGN_OR_RETURN(model->config_, ReadModelConfig(*gguf));
  ASSIGN_OR_RETURN(VocabSpec vocabulary, ReadVocab(*gguf));
  ASSIGN_OR_RETURN(model->tokenizer_, Tokenizer::Create(std::move(vocabulary)));
  if (static_cast<uint32_t>(model->tokenizer_->size()) != model->config_.vocabulary) {
    return absl::DataLossError(absl::StrCat("key tokenizer.ggml.tokens holds ",
                                            model->tokenizer_->size(),
                                            " tokens, tensor token_embd.weight has ",
                                            model->config_.vocabulary, " rows; expected as many"));
  }
  ASSIGN_OR_RETURN(const std::string_view source, gguf->GetStringOr("tokenizer.chat_template", ""));
  ASSIGN_OR_RETURN(model->chat_template_, ChatTemplate::Create(source, *model->tokenizer_));
  const GgufReader& reader = *gguf;
  ASSIGN_OR_RETURN(model->weights_, BindWeights(std::move(gguf), model->config_));
  model->fingerprint_ =
      CachedFingerprint(gguf_path, FingerprintCacheFolder(), reader, model->config_);
  return model;
}

}  // namespace sparkv
