// Small model profiles of made-up content for tests: transforms that can be inverted, low-rank
// predictions, nothing learnt from a model. Deterministic.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/codec/dec_aatc.h"
#include "common/codec/enc_profile.h"
#include "common/codec/profile.h"
#include "common/codec/residual.h"
#include "tests/catch.h"

namespace sparkv::testing {

inline constexpr uint32_t kServedWidth = 32;  // of ServedEmbedding
inline constexpr int32_t kServedVocabulary = 50000;

inline float ServedNoise(uint64_t seed) {  // -1..1
  seed = (seed + 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
  seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EBu;
  return static_cast<float>(static_cast<int64_t>(seed >> 40) - (1 << 23)) / (1 << 23);
}

inline TokenEmbedding ServedEmbedding() {
  return {.width = kServedWidth, .rows = [](std::span<const int32_t> tokens, float* out) {
            for (const int32_t id : tokens) {
              if (id < 0 || id >= kServedVocabulary)
                return absl::InvalidArgumentError(absl::StrCat("no token ", id));
              for (uint32_t i = 0; i < kServedWidth; ++i)
                *out++ = ServedNoise(static_cast<uint64_t>(id) * kServedWidth + i);
            }
            return absl::OkStatus();
          }};
}

struct ServedProfileOptions {
  KvGeometry geometry{3, 2, 16, KvDtype::kF16};  // kv_heads * head_dim a multiple of 32
  Digest model_fingerprint{};
  bool predict = true;  // aatc-pred, else aatc
  uint32_t d_model = kServedWidth;
  uint32_t rank = 32;  // of either kind
  float step = 4;
  float most_predict = 0.1f;  // largest entry of the prediction matrices
  uint64_t seed = 1;          // another seed is another profile
};

inline std::string ServedProfile(const ServedProfileOptions& o) {
  ProfileContent content;
  ProfileShape& s = content.shape;
  const CodecInfo& info = o.predict ? AatcPredInfo() : AatcInfo();
  s.codec_id = info.id;
  s.codec_version = info.version;
  s.planes = static_cast<uint32_t>(info.planes);
  s.geometry = o.geometry;
  s.d_model = o.d_model;
  s.group = 32;
  s.rank_below = s.rank_token = o.predict ? o.rank : 0;
  for (uint32_t i = 0; i < o.geometry.head_dim / 2; ++i)
    s.frequency.push_back(std::pow(10000.0, -2.0 * i / o.geometry.head_dim));
  s.step = o.step;
  s.model_fingerprint = o.model_fingerprint;

  uint64_t seed = o.seed << 32;
  const auto noise = [&seed](size_t n, float scale) {
    std::vector<float> values(n);
    for (float& v : values) v = scale * ServedNoise(seed++);
    return values;
  };
  const uint32_t wide = 2 * s.row();
  content.token =
      QuantizeRows(kernels::GgmlType::kQ8_0, noise(size_t{s.rank_token} * s.d_model, 0.1f));
  for (uint32_t table = 0; table < kProfileTables; ++table) {
    // One of each symbol, the rest where a Laplacian of growing width has it.
    std::vector<uint32_t> f(kProfileSymbols, 1);
    uint32_t left = 4096 - kProfileSymbols;
    for (uint32_t i = 0; left > 0; i = (i + 1) % kProfileSymbols) {
      const uint32_t share = left / (2 + table / 4) + 1;
      f[i] += share;
      left -= share;
    }
    content.frequencies.insert(content.frequencies.end(), f.begin(), f.end());
  }
  for (uint32_t l = 1; l < s.geometry.layers; ++l) {
    ProfileContent::Layer layer;
    layer.offset = noise(wide, 1);
    if (s.projects_below())
      layer.below = QuantizeRows(s.predict_type, noise(size_t{s.rank_below} * wide, 0.1f));
    layer.predict = QuantizeRows(s.predict_type, noise(size_t{wide} * s.rank(), o.most_predict));
    for (uint32_t g = 0; g < 2 * s.groups(); ++g) {
      std::vector<float> inverse = noise(size_t{s.group} * s.group, 0.5f / s.group);
      for (uint32_t i = 0; i < s.group; ++i) inverse[size_t{i} * s.group + i] += 1;
      layer.inverse += QuantizeRows(kernels::GgmlType::kQ8_0, inverse);
    }
    for (uint32_t i = 0; i < wide; ++i)
      layer.table.push_back(static_cast<uint8_t>(i % kProfileTables));
    content.layers.push_back(std::move(layer));
  }
  absl::StatusOr<std::string> bytes = WriteProfile(content);
  REQUIRE_OK(bytes);
  return *std::move(bytes);
}

inline std::shared_ptr<const CodecProfile> ParsedServedProfile(const ServedProfileOptions& o) {
  auto parsed = CodecProfile::Parse(ServedProfile(o));
  REQUIRE_OK(parsed);
  return *std::move(parsed);
}

}  // namespace sparkv::testing
