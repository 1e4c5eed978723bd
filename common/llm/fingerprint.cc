#include "common/llm/fingerprint.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/file.h"

namespace sparkv {
namespace {

template <typename T>
std::string_view Raw(const T* data, size_t n) {
  return {reinterpret_cast<const char*>(data), n * sizeof(T)};
}

void HashConfig(const ModelConfig& c, Sha256* sha) {
  sha->Field("architecture", c.architecture);
  sha->Field("layers", c.layers).Field("d_model", c.d_model).Field("d_ff", c.d_ff);
  sha->Field("heads", c.heads).Field("kv_heads", c.kv_heads).Field("head_dim", c.head_dim);
  sha->Field("vocabulary", c.vocabulary);
  sha->Field("rms_epsilon", Raw(&c.rms_epsilon, 1));
  sha->Field("rope.kind", static_cast<uint64_t>(c.rope.kind)).Field("rope.dim", c.rope.dim);
  sha->Field("rope.base", Raw(&c.rope.base, 1))
      .Field("rope.scale", Raw(&c.rope.frequency_scale, 1));
  sha->Field("rope.factors", Raw(c.rope.frequency_factors.data(), c.rope.frequency_factors.size()));
}

void HashTokenizer(const GgufReader& gguf, Sha256* sha) {
  std::vector<std::pair<std::string_view, const GgufValue*>> values;
  for (const auto& [key, value] : gguf.metadata()) {
    // The chat template changes which tokens are asked for, never what they mean.
    if (key.starts_with("tokenizer.ggml.")) values.emplace_back(key, &value);
  }
  std::sort(values.begin(), values.end());
  for (const auto& [key, value] : values) {
    sha->Field("key", key).Field("type", value->TypeName());
    sha->Field("value", AsStringView(value->stored_bytes()));
  }
}

void HashTensors(const GgufReader& gguf, Sha256* sha) {
  std::vector<const GgufTensor*> tensors;
  for (const GgufTensor& t : gguf.tensors()) tensors.push_back(&t);
  std::sort(tensors.begin(), tensors.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->name < b->name; });
  for (const GgufTensor* t : tensors) {
    sha->Field("tensor", t->name).Field("type", static_cast<uint64_t>(t->type));
    sha->Field("shape", Raw(t->dims, kMaxGgufDims)).Field("data", AsStringView(t->data));
  }
}

// What identifies the bytes at a path as far as the file system tells; empty when it cannot.
std::string FileIdentity(const std::string& path) {
  std::error_code error;
  const std::string absolute = std::filesystem::canonical(path, error).string();
  struct stat st {};
  if (error || ::stat(path.c_str(), &st) != 0) return "";
  return absl::StrCat("sparkv-fingerprint-1\n", absolute, "\n", st.st_size, " ", st.st_mtim.tv_sec,
                      ".", st.st_mtim.tv_nsec, " ", st.st_dev, " ", st.st_ino, "\n");
}

}  // namespace

Digest ComputeFingerprint(const GgufReader& gguf, const ModelConfig& config) {
  Sha256 sha;
  sha.Field("sparkv.model", 1);
  HashConfig(config, &sha);
  HashTokenizer(gguf, &sha);
  HashTensors(gguf, &sha);
  return sha.Finish();
}

Digest CachedFingerprint(const std::string& gguf_path, const std::string& cache_folder,
                         const GgufReader& gguf, const ModelConfig& config) {
  const std::string identity = FileIdentity(gguf_path);
  if (cache_folder.empty() || identity.empty()) return ComputeFingerprint(gguf, config);
  const Digest key = Sha256().Field("identity", identity).Finish();
  const std::string path = absl::StrCat(cache_folder, "/", DigestToHex(key), ".fingerprint");
  // Content: the identity, then 64 hex digits and a line end.
  constexpr uint64_t kMaxBytes = 64 << 10;
  if (const absl::StatusOr<std::string> cached = ReadFile(path, kMaxBytes); cached.ok()) {
    if (cached->starts_with(identity) && cached->size() == identity.size() + 65) {
      const absl::StatusOr<Digest> digest = DigestFromHex(cached->substr(identity.size(), 64));
      if (digest.ok()) return *digest;
    }
  }
  const Digest digest = ComputeFingerprint(gguf, config);
  // A file that changed while it was read must not be remembered.
  if (FileIdentity(gguf_path) == identity) {
    std::error_code error;
    std::filesystem::create_directories(cache_folder, error);
    if (!error) {
      WriteFileDurably(path, absl::StrCat(identity, DigestToHex(digest), "\n")).IgnoreError();
    }
  }
  return digest;
}

std::string FingerprintCacheFolder() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && xdg[0] == '/') {
    return absl::StrCat(xdg, "/sparkv");
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') {
    return absl::StrCat(home, "/.cache/sparkv");
  }
  return "";
}

}  // namespace sparkv
