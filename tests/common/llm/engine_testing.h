// What the engine's tests share: the tiny golden models, mutated copies of them, and logits by
// different ways.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/kv/kv_cache.h"
#include "common/llm/decoder.h"
#include "common/llm/model.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_folder.h"

namespace sparkv::testing {

std::string ReadAll(const std::string& path);
void WriteAll(const std::string& path, std::string_view bytes);

// Like Model::Load, without a fingerprint left in the user's cache.
absl::StatusOr<std::shared_ptr<const Model>> LoadModel(const std::string& path);
// Of bytes written to a temporary file.
absl::StatusOr<std::shared_ptr<const Model>> LoadBytes(std::string_view gguf);

// tests/golden/tiny/NAME.
std::string TinyGguf(std::string_view name);
struct TinyLogits {
  std::vector<int32_t> ids;
  uint32_t vocabulary = 0;
  std::vector<float> logits;  // [ids][vocabulary]
};
TinyLogits ReadTinyLogits(std::string_view name);

// Overwrites the value of a metadata key (its stored bytes, of the same size).
void PatchKey(std::string* gguf, std::string_view key, std::string_view value);
template <typename T>
void PatchKey(std::string* gguf, std::string_view key, T value) {
  PatchKey(gguf, key, std::string_view(reinterpret_cast<const char*>(&value), sizeof(value)));
}
// The bytes of a tensor within the file.
std::span<char> TensorBytes(std::string* gguf, std::string_view name);

KvCache MakeCache(const Model& model, KvDtype dtype);

// Logits of all rows, layer by layer over `chunk` tokens at a time (0: all), as a loader would call
// the decoder.
std::vector<float> LogitsByLayers(Decoder* decoder, std::span<const int32_t> ids, KvDtype dtype,
                                  uint32_t chunk);
// Logits of all rows, one token at a time.
std::vector<float> LogitsByDecode(Decoder* decoder, std::span<const int32_t> ids, KvDtype dtype);

inline bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Largest absolute difference; infinity for different sizes or a NaN.
float MaxDifference(std::span<const float> a, std::span<const float> b);

}  // namespace sparkv::testing
