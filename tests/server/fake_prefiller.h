// A Prefiller without a model: K/V of a token are a function of its id, its position and the token
// before, so that a wrong position, a wrong order or a gap shows. Deterministic.
#pragma once

#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/codecs.h"
#include "server/prefiller.h"
#include "tests/server/store_fixture.h"
#include "tests/testing/served_profile.h"

namespace sparkv::testing {

class FakePrefiller : public Prefiller {
 public:
  explicit FakePrefiller(const KvGeometry& geometry = kTestGeometry) : geometry_(geometry) {}
  std::string model_name() const override { return "fake"; }
  Digest fingerprint() const override { return TestFingerprint(); }
  KvGeometry geometry() const override { return geometry_; }
  uint32_t vocabulary() const override { return 50000; }
  uint32_t context_length() const override { return 8192; }
  TokenEmbedding token_embedding() const override { return testing::ServedEmbedding(); }
  absl::StatusOr<std::vector<int32_t>> Tokenize(std::string_view text, bool raw,
                                                std::string_view system,
                                                const CancelledFn&) const override {
    std::vector<int32_t> ids;
    if (!raw) ids.push_back(static_cast<int32_t>(1000 + system.size()));
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  absl::Status Prefill(std::span<const int32_t> tokens, KvCache* cache, const CancelToken& cancel,
                       const std::function<void(uint32_t)>& progress,
                       std::vector<uint16_t>* active_blocks) override {
    const uint32_t begin = cache->tokens();
    if (on_prefill) on_prefill(begin);
    while (until_cancelled && !cancel.cancelled()) std::this_thread::yield();
    RETURN_IF_ERROR(cancel.Check());
    RETURN_IF_ERROR(cache->Extend(begin + static_cast<uint32_t>(tokens.size())));
    const KvGeometry g = geometry();
    std::vector<float> before(g.row()), k(g.row()), v(g.row());
    for (uint32_t i = 0; i < tokens.size(); ++i) {
      for (uint32_t layer = 0; layer < g.layers; ++layer) {
        if (begin + i > 0) {
          cache->ReadRows(layer, KvSide::kK, begin + i - 1, 1, before.data(), g.head_dim);
        }
        for (uint32_t d = 0; d < g.row(); ++d) {
          // Small integers: exact in f16, and every row depends on all before it.
          k[d] = static_cast<float>((static_cast<int>(before[d]) * 7 + tokens[i] +
                                     static_cast<int32_t>(begin + i + d + layer)) %
                                    1021);
          v[d] = static_cast<float>((tokens[i] * 3 + static_cast<int32_t>(d)) % 509);
        }
        cache->WriteRows(layer, begin + i, 1, k.data(), v.data(), g.row());
      }
      if (i % 256 == 255) {
        progress(i + 1);
        if (cancel.cancelled()) {
          cache->Truncate(begin);
          return cancel.Check();
        }
      }
    }
    prefilled += static_cast<uint32_t>(tokens.size());
    *active_blocks = ActiveBlocks(begin);
    progress(static_cast<uint32_t>(tokens.size()));
    return absl::OkStatus();
  }

  // Of the tokens from `begin` on: [layers][kv_heads], all different within a context.
  std::vector<uint16_t> ActiveBlocks(uint32_t begin) const {
    std::vector<uint16_t> blocks;
    for (uint32_t i = 0; i < geometry_.layers * geometry_.kv_heads; ++i)
      blocks.push_back(static_cast<uint16_t>(begin / kPageTokens * 7 + i + 1));
    return blocks;
  }

  std::function<void(uint32_t)>
      on_prefill;  // called with the first position, on the engine's thread
  std::atomic<bool> until_cancelled = false;  // prefill works until it is cancelled
  std::atomic<uint32_t> prefilled = 0;

 private:
  const KvGeometry geometry_;
};

// The codecs of a server that was given no profile.
inline const ServerCodecs& Codecs() {
  static const std::unique_ptr<ServerCodecs> codecs =
      ServerCodecs::Create({}, FakePrefiller(), "").value();
  return *codecs;
}

// A geometry that profiles can be made for, and one for the fake's model.
inline const KvGeometry kWideGeometry{3, 2, 16, KvDtype::kF16};
inline ServedProfileOptions FakeProfile() {
  return {.geometry = kWideGeometry, .model_fingerprint = TestFingerprint()};
}

// Writes `bytes` to a file and returns its name.
inline std::string FileWith(const TempFolder& folder, const std::string& name,
                            const std::string& bytes) {
  const std::string path = folder.path() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// The K/V that a context of `tokens` must have: what the fake computes in one go.
inline KvCache ExpectedKv(const std::vector<int32_t>& tokens,
                          const KvGeometry& geometry = kTestGeometry) {
  FakePrefiller fake(geometry);
  auto pool = KvPagePool::Create(geometry, uint64_t{1} << 25).value();
  KvCache cache(pool);
  std::vector<uint16_t> active_blocks;
  REQUIRE(fake.Prefill(
                  tokens, &cache, {}, [](uint32_t) {}, &active_blocks)
              .ok());
  return cache;
}

}  // namespace sparkv::testing
