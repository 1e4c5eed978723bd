// A model: configuration, tokenizer, chat template and memory-mapped weights of one GGUF.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/sha256.h"
#include "common/llm/chat_template.h"
#include "common/llm/model_config.h"
#include "common/llm/tokenizer.h"

namespace sparkv {

struct Weights;  // common/llm/weights.h

// Immutable and thread-safe after Load.
class Model {
 public:
  // Maps and checks the file. NotFound, InvalidArgument or DataLoss (malformed GGUF, missing or
  // misshapen tensor: the message names it), Unimplemented (architecture, tensor type).
  static absl::StatusOr<std::shared_ptr<const Model>> Load(const std::string& gguf_path);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const { return config_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const ChatTemplate& chat_template() const { return *chat_template_; }
  const Weights& weights() const { return *weights_; }
  const std::string& path() const { return path_; }

  // SHA-256 over architecture and RoPE parameters, tokenizer, and every tensor's name, type, shape
  // and bytes: a different quantization is a different model. Cached in `$XDG_CACHE_HOME/sparkv` by
  // (path, size, mtime, inode).
  const Digest& fingerprint() const { return fingerprint_; }

 private:
  Model();
  std::string path_;
  ModelConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_;
  std::unique_ptr<Weights> weights_;
  Digest fingerprint_{};
};

}  // namespace sparkv
