// Models that must be refused, each with an error that names the key or tensor.
#include "common/llm/model.h"

#include <cmath>

#include "common/llm/weights.h"
#include "tests/catch.h"
#include "tests/common/llm/engine_testing.h"

using namespace sparkv;
using namespace sparkv::testing;

namespace {

// The error of a tiny llama with one key changed.
template <typename T>
absl::Status WithKey(const char* key, T value) {
  std::string gguf = TinyGguf("llama");
  PatchKey(&gguf, key, value);
  return LoadBytes(gguf).status();
}

absl::Status WithText(const char* model, const std::string& from, const std::string& to) {
  REQUIRE(from.size() == to.size());
  std::string gguf = TinyGguf(model);
  const size_t at = gguf.find(from);
  REQUIRE(at != std::string::npos);
  gguf.replace(at, from.size(), to);
  return LoadBytes(gguf).status();
}

void RequireError(const absl::Status& status, absl::StatusCode code,
                  std::initializer_list<const char*> parts) {
  INFO(status.ToString());
  REQUIRE(status.code() == code);
  for (const char* part : parts) {
    INFO("expected in the message: " << part);
    REQUIRE(Contains(status.ToString(), part));
  }
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kLoss = absl::StatusCode::kDataLoss;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

}  // namespace

TEST_CASE("the configuration of each architecture is read") {
  const auto llama3 = LoadBytes(TinyGguf("llama3"));
  REQUIRE_OK(llama3);
  const ModelConfig& c = (*llama3)->config();
  REQUIRE(c.architecture == "llama");
  REQUIRE(c.layers == 2);
  REQUIRE(c.d_model == 64);
  REQUIRE(c.d_ff == 48);
  REQUIRE(c.heads == 4);
  REQUIRE(c.kv_heads == 1);
  REQUIRE(c.head_dim == 16);
  REQUIRE(c.vocabulary == 260);
  REQUIRE(c.context_length == 256);
  REQUIRE(c.rope.base == 500000.0);
  REQUIRE(c.rope.kind == RopeKind::kInterleaved);
  REQUIRE(c.rope.frequency_factors.size() == 8);
  REQUIRE((*llama3)->weights().output.data != (*llama3)->weights().embedding.data);
  const auto qwen2 = LoadBytes(TinyGguf("qwen2"));
  REQUIRE_OK(qwen2);
  REQUIRE((*qwen2)->config().qkv_bias);
  REQUIRE((*qwen2)->config().rope.kind == RopeKind::kSplitHalf);
  REQUIRE((*qwen2)->weights().output.data == (*qwen2)->weights().embedding.data);
  const auto qwen3 = LoadBytes(TinyGguf("qwen3"));
  REQUIRE_OK(qwen3);
  REQUIRE((*qwen3)->config().qk_norm);
  REQUIRE((*qwen3)->config().head_dim == 24);
}

TEST_CASE("hostile sizes are refused by key") {
  RequireError(WithKey("llama.block_count", uint32_t{4000000000u}), kInvalid,
               {"llama.block_count", "4000000000", "1..1024"});
  RequireError(WithKey("llama.block_count", uint32_t{0}), kInvalid, {"llama.block_count"});
  RequireError(WithKey("llama.embedding_length", uint32_t{0}), kInvalid,
               {"llama.embedding_length"});
  RequireError(WithKey("llama.embedding_length", uint32_t{0xFFFFFFFF}), kInvalid,
               {"llama.embedding_length"});
  RequireError(WithKey("llama.feed_forward_length", uint32_t{0}), kInvalid,
               {"llama.feed_forward_length"});
  RequireError(WithKey("llama.context_length", uint32_t{0}), kInvalid, {"llama.context_length"});
  RequireError(WithKey("llama.attention.head_count", uint32_t{0}), kInvalid,
               {"llama.attention.head_count"});
  RequireError(WithKey("llama.attention.head_count", uint32_t{5}), kInvalid,
               {"llama.attention.head_count", "is 5", "multiple"});
  RequireError(WithKey("llama.attention.head_count_kv", uint32_t{0}), kInvalid, {"head_count_kv"});
  RequireError(WithKey("llama.attention.key_length", uint32_t{0}), kInvalid, {"key_length"});
  RequireError(WithKey("llama.attention.key_length", uint32_t{15}), kInvalid, {"15", "even"});
  RequireError(WithKey("llama.attention.value_length", uint32_t{8}), kUnimplemented,
               {"value_length"});
}

TEST_CASE("absurd real numbers are refused by key") {
  const char* epsilon = "llama.attention.layer_norm_rms_epsilon";
  for (const float value : {NAN, INFINITY, -1e-5f, 1.0f})
    RequireError(WithKey(epsilon, value), kInvalid, {epsilon});
  const char* base = "llama.rope.freq_base";
  for (const float value : {NAN, INFINITY, -1.0f, 0.0f})
    RequireError(WithKey(base, value), kInvalid, {base});
}

TEST_CASE("other architectures and missing keys are named") {
  RequireError(WithText("llama", std::string("\x05\0\0\0\0\0\0\0llama", 13),
                        std::string("\x05\0\0\0\0\0\0\0rwkv7", 13)),
               kUnimplemented,
               {"architecture rwkv7 is not supported; supported: llama, qwen2, qwen3"});
  REQUIRE(Contains(WithText("llama", "llama.block_count", "llama.block_comet").ToString(),
                   "llama.block_count"));
}

TEST_CASE("missing and misshapen tensors are named") {
  RequireError(WithText("llama", "blk.1.ffn_up.weight", "blk.1.ffn_dn.weight"), kLoss,
               {"blk.1.ffn_up.weight", "missing"});
  RequireError(WithText("qwen2", "blk.2.attn_k.bias", "blk.2.attn_x.bias"), kLoss,
               {"blk.2.attn_k.bias"});
  RequireError(WithText("qwen3", "blk.0.attn_k_norm.weight", "blk.0.attn_x_norm.weight"), kLoss,
               {"blk.0.attn_k_norm.weight"});
  RequireError(WithKey("llama.feed_forward_length", uint32_t{81}), kLoss,
               {"blk.0.ffn_gate.weight", "[48, 80]", "[48, 81]"});
  RequireError(WithKey("llama.block_count", uint32_t{3}), kLoss,
               {"blk.2.attn_norm.weight", "missing"});

  std::string gguf = TinyGguf("llama");
  const float nan = NAN;
  std::copy_n(reinterpret_cast<const char*>(&nan), 4,
              TensorBytes(&gguf, "output_norm.weight").data());
  RequireError(LoadBytes(gguf).status(), kLoss, {"output_norm.weight", "not finite"});
}

TEST_CASE("no file, no model") {
  RequireError(LoadModel("/nonexistent/model.gguf").status(), absl::StatusCode::kNotFound,
               {"model.gguf"});
  const std::string gguf = TinyGguf("llama");
  for (const size_t size : {size_t{0}, size_t{3}, size_t{100}, gguf.size() / 2, gguf.size() - 1}) {
    REQUIRE_FALSE(LoadBytes(gguf.substr(0, size)).ok());
  }
}
