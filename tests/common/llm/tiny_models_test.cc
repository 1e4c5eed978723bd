// Against `transformers` on small random models; see tests/golden/make_tiny_models.py.
#include <cstring>
#include <numeric>

#include "tests/catch.h"
#include "tests/common/llm/engine_testing.h"

using namespace sparkv;
using namespace sparkv::testing;

namespace {

const std::vector<std::string> kModels = {"llama", "llama3", "qwen2", "qwen3"};
constexpr float kLimitF32 = 1e-4f;
constexpr float kLimitF16 = 1e-2f;

float Limit(KvDtype dtype) { return dtype == KvDtype::kF32 ? kLimitF32 : kLimitF16; }

// How far a mutated model is from the golden logits.
float Distance(const std::string& gguf, const std::string& name) {
  const auto model = LoadBytes(gguf);
  REQUIRE_OK(model);
  Decoder decoder(*model, {.threads = 2});
  const TinyLogits golden = ReadTinyLogits(name);
  return MaxDifference(LogitsByLayers(&decoder, golden.ids, KvDtype::kF32, 0), golden.logits);
}

}  // namespace

TEST_CASE("logits equal those of transformers, however the tokens are cut") {
  for (const std::string& name : kModels) {
    const auto model = LoadBytes(TinyGguf(name));
    REQUIRE_OK(model);
    Decoder decoder(*model, {.threads = 2});
    const TinyLogits golden = ReadTinyLogits(name);
    REQUIRE(golden.vocabulary == (*model)->config().vocabulary);
    for (const KvDtype dtype : {KvDtype::kF32, KvDtype::kF16}) {
      // Below kDenseRows rows one way of running a layer is taken, from there on the other.
      for (const uint32_t chunk : {0u, 1u, 7u, 15u, 16u, 33u}) {
        INFO(name << " dtype " << static_cast<int>(dtype) << " chunk " << chunk);
        REQUIRE(MaxDifference(LogitsByLayers(&decoder, golden.ids, dtype, chunk), golden.logits) <=
                Limit(dtype));
      }
      INFO(name << " dtype " << static_cast<int>(dtype));
      REQUIRE(MaxDifference(LogitsByDecode(&decoder, golden.ids, dtype), golden.logits) <=
              Limit(dtype));
    }
  }
}

TEST_CASE("any number of threads gives the golden logits") {
  const auto model = LoadBytes(TinyGguf("qwen3"));
  REQUIRE_OK(model);
  const TinyLogits golden = ReadTinyLogits("qwen3");
  for (const int threads : {1, 2, 3, 5}) {
    INFO(threads);
    Decoder decoder(*model, {.threads = threads});
    REQUIRE(MaxDifference(LogitsByLayers(&decoder, golden.ids, KvDtype::kF32, 0), golden.logits) <=
            kLimitF32);
    REQUIRE(MaxDifference(LogitsByDecode(&decoder, golden.ids, KvDtype::kF32), golden.logits) <=
            kLimitF32);
  }
}

// The golden comparison must notice each of these faults by a wide margin: otherwise it proves
// nothing.
TEST_CASE("a wrong RoPE base moves the logits far beyond the tolerance") {
  for (const std::string& name : kModels) {
    INFO(name);
    std::string gguf = TinyGguf(name);
    const std::string prefix = name == "llama3" ? "llama" : name;
    const float base = name == "llama3" ? 400000.0f : name == "llama" ? 9000.0f : 900000.0f;
    PatchKey(&gguf, prefix + ".rope.freq_base", base);
    REQUIRE(Distance(gguf, name) > 100 * kLimitF32);
  }
}

TEST_CASE("a missing frequency factor moves the logits far beyond the tolerance") {
  std::string gguf = TinyGguf("llama3");
  const std::span<char> factors = TensorBytes(&gguf, "rope_freqs.weight");
  const float one = 1.0f;
  for (size_t i = 0; i < factors.size(); i += 4) std::memcpy(&factors[i], &one, 4);
  REQUIRE(Distance(gguf, "llama3") > 100 * kLimitF32);
}

TEST_CASE("swapped heads move the logits far beyond the tolerance") {
  for (const char* tensor : {"blk.1.attn_q.weight", "blk.1.attn_k.weight", "blk.0.attn_v.weight"}) {
    INFO(tensor);
    std::string gguf = TinyGguf("llama");
    const std::span<char> rows = TensorBytes(&gguf, tensor);
    const size_t head = 16 * 48 * sizeof(float);
    for (size_t i = 0; i < head; ++i) std::swap(rows[i], rows[head + i]);
    REQUIRE(Distance(gguf, "llama") > 100 * kLimitF32);
  }
}

TEST_CASE("norms and biases of each architecture are used") {
  const auto scaled = [](const std::string& name, const char* tensor) {
    std::string gguf = TinyGguf(name);
    const std::span<char> bytes = TensorBytes(&gguf, tensor);
    for (size_t i = 0; i < bytes.size(); i += 4) {
      float v;
      std::memcpy(&v, &bytes[i], 4);
      v = v * 1.5f + 0.1f;
      std::memcpy(&bytes[i], &v, 4);
    }
    return Distance(gguf, name);
  };
  for (const char* tensor : {"blk.0.attn_q.bias", "blk.1.attn_v.bias", "blk.2.ffn_norm.weight"}) {
    INFO(tensor);
    REQUIRE(scaled("qwen2", tensor) > 100 * kLimitF32);
  }
  for (const char* tensor :
       {"blk.0.attn_q_norm.weight", "blk.1.attn_k_norm.weight", "output_norm.weight"}) {
    INFO(tensor);
    REQUIRE(scaled("qwen3", tensor) > 100 * kLimitF32);
  }
}
