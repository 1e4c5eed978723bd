// The identity of a model's file, and its cache on disk.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/base/sha256.h"
#include "common/gguf/gguf_reader.h"
#include "common/llm/model_config.h"

namespace sparkv {

// SHA-256 over architecture, RoPE, tokenizer and every tensor (name, type, shape, bytes), in an
// order that does not depend on the file's.
Digest ComputeFingerprint(const GgufReader& gguf, const ModelConfig& config);

// The same through the cache folder: a file there, named after (path, size, mtime, inode), saves
// reading the model. A broken or foreign cache file is ignored and replaced; a folder that cannot
// be written is no error.
Digest CachedFingerprint(const std::string& gguf_path, const std::string& cache_folder,
                         const GgufReader& gguf, const ModelConfig& config);

// $XDG_CACHE_HOME/sparkv, else $HOME/.cache/sparkv, else "" (no cache).
std::string FingerprintCacheFolder();

}  // namespace sparkv
