#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/llm/tokenizer.h"

namespace sparkv {

absl::StatusOr<VocabSpec> ReadVocab(const GgufReader& gguf) {
  VocabSpec spec;
  ASSIGN_OR_RETURN(const std::string_view model, gguf.GetString("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return absl::UnimplementedError(
        absl::StrCat("key tokenizer.ggml.model is \"", std::string(model),
                     "\", which is not supported; supported: gpt2 (byte-level BPE)"));
  }
  ASSIGN_OR_RETURN(const std::string_view pre, gguf.GetStringOr("tokenizer.ggml.pre", "gpt-2"));
  spec.pre = std::string(pre);
  ASSIGN_OR_RETURN(const std::vector<std::string_view> tokens,
                   gguf.GetStrings("tokenizer.ggml.tokens"));
  spec.tokens.assign(tokens.begin(), tokens.end());
  ASSIGN_OR_RETURN(const std::vector<std::string_view> merges,
                   gguf.GetStrings("tokenizer.ggml.merges"));
  spec.merges.assign(merges.begin(), merges.end());
  if (gguf.Has("tokenizer.ggml.token_type")) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> kinds, gguf.GetInts("tokenizer.ggml.token_type"));
    if (kinds.size() != spec.tokens.size()) {
      return absl::InvalidArgumentError(absl::StrCat("key tokenizer.ggml.token_type has ",
                                                     kinds.size(), " elements, expected ",
                                                     spec.tokens.size()));
    }
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i] < 1 || kinds[i] > 6) {
        return absl::InvalidArgumentError(absl::StrCat("key tokenizer.ggml.token_type: element ", i,
                                                       " is ", kinds[i], ", allowed: 1..6"));
      }
      spec.kinds.push_back(static_cast<TokenKind>(kinds[i]));
    }
  }
  const std::pair<const char*, std::optional<int32_t>*> ids[] = {
      {"tokenizer.ggml.bos_token_id", &spec.bos},
      {"tokenizer.ggml.eos_token_id", &spec.eos},
      {"tokenizer.ggml.eot_token_id", &spec.eot},
      {"tokenizer.ggml.padding_token_id", &spec.pad},
      {"tokenizer.ggml.unknown_token_id", &spec.unknown}};
  for (const auto& [key, slot] : ids) {
    if (!gguf.Has(key)) continue;
    ASSIGN_OR_RETURN(const uint32_t id, gguf.GetU32(key));
    if (id >= spec.tokens.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "key ", key, " is ", id, ", but the vocabulary has ", spec.tokens.size(), " tokens"));
    }
    *slot = static_cast<int32_t>(id);
  }
  // Llama 3 files without the key expect a BOS, as their template writes one.
  const bool llama3 = spec.pre == "llama-bpe" || spec.pre == "llama3" || spec.pre == "llama-v3";
  const bool bos_by_default = llama3 && spec.bos.has_value();
  ASSIGN_OR_RETURN(spec.add_bos, gguf.GetBoolOr("tokenizer.ggml.add_bos_token", bos_by_default));
  ASSIGN_OR_RETURN(spec.add_eos, gguf.GetBoolOr("tokenizer.ggml.add_eos_token", false));
  return spec;
}

}  // namespace sparkv
