// Small model profiles, token embeddings and columns, made from a seed: the same on every machine,
// since nothing here rounds but a division. They resemble no model; transforms are well
// conditioned.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/codec/enc_codec.h"
#include "common/codec/enc_profile.h"
#include "common/codec/enc_rans.h"
#include "common/codec/profile.h"
#include "common/codec/residual.h"
#include "common/codec/residual_common.h"
#include "kernels/half.h"

namespace sparkv::testing {

struct TinyProfileOptions {
  KvGeometry geometry{3, 2, 16, KvDtype::kF16};
  uint32_t d_model = 32;
  uint32_t group = 32;
  uint32_t rank_below = 32;  // both ranks 0: a profile for `aatc`
  uint32_t rank_token = 32;
  kernels::GgmlType predict_type = kernels::GgmlType::kQ8_0;
  RopePairs rope = RopePairs::kInterleaved;
  uint32_t pairs = 8;
  float step = 0.5f;
  int most_predict = 100;  // largest entry of the prediction matrices, in 1/1024
  Digest model_fingerprint{};
  uint32_t seed = 1;
};

namespace tiny {

// Multiples of 1/1024 within [-most, most] / 1024.
inline std::vector<float> Numbers(std::mt19937& rng, size_t n, int most) {
  std::vector<float> out(n);
  for (float& v : out) {
    v = static_cast<float>(static_cast<int>(rng() % static_cast<uint32_t>(2 * most + 1)) - most) /
        1024.0f;
  }
  return out;
}

// Tables of 64 widths. Symbols below half a slot are left to the escape.
inline std::vector<uint32_t> Tables() {
  std::vector<uint32_t> out;
  for (uint32_t t = 0; t < kProfileTables; ++t) {
    std::vector<uint64_t> counts(kProfileSymbols);
    uint64_t count = uint64_t{1} << 40, total = 0;
    for (int32_t v = 0; v <= kMaxSymbolMagnitude; ++v) {
      counts[ValueToSymbol(v)] = counts[ValueToSymbol(-v)] = count;
      total += (v == 0 ? 1 : 2) * count;
      count = count / (t + 2) * (t + 1);
    }
    for (uint64_t& c : counts) {
      if (c < total / (2 * kRansFrequencySum)) c = 0;
    }
    counts[kEscapeSymbol] = 1;
    std::vector<uint32_t> frequencies(kProfileSymbols);
    NormalizeFrequencies(counts, frequencies);
    out.insert(out.end(), frequencies.begin(), frequencies.end());
  }
  return out;
}

}  // namespace tiny

inline ProfileContent TinyProfileContent(const TinyProfileOptions& o) {
  ProfileContent out;
  ProfileShape& s = out.shape;
  s.geometry = o.geometry;
  s.d_model = o.d_model;
  s.group = o.group;
  s.rank_below = o.rank_below;
  s.rank_token = o.rank_token;
  s.codec_id = s.predicts() ? 7 : 6;
  s.codec_version = 1;
  s.planes = 5;
  s.predict_type = o.predict_type;
  s.rope = o.rope;
  for (uint32_t i = 0; i < o.pairs; ++i) s.frequency.push_back(1.0 / (1 + i * i));
  s.step = o.step;
  s.model_fingerprint = o.model_fingerprint;

  std::mt19937 rng(o.seed);
  const uint32_t wide = 2 * s.row();
  out.token = QuantizeRows(kernels::GgmlType::kQ8_0,
                           tiny::Numbers(rng, size_t{s.rank_token} * s.d_model, 200));
  out.frequencies = tiny::Tables();
  for (uint32_t l = 1; l < s.geometry.layers; ++l) {
    ProfileContent::Layer layer;
    layer.offset = tiny::Numbers(rng, wide, 500);
    if (s.projects_below()) {
      layer.below =
          QuantizeRows(s.predict_type, tiny::Numbers(rng, size_t{s.rank_below} * wide, 200));
    }
    if (s.predicts()) {
      layer.predict =
          QuantizeRows(s.predict_type, tiny::Numbers(rng, size_t{wide} * s.rank(), o.most_predict));
    }
    // Off the diagonal no row sums to more than 1/2: well conditioned for any group.
    const int most = static_cast<int>(512 / s.group);
    for (uint32_t g = 0; g < 2 * s.groups(); ++g) {
      std::vector<float> matrix = tiny::Numbers(rng, size_t{s.group} * s.group, most);
      for (uint32_t i = 0; i < s.group; ++i) matrix[size_t{i} * s.group + i] = 1;
      layer.inverse += QuantizeRows(kernels::GgmlType::kQ8_0, matrix);
    }
    for (uint32_t i = 0; i < wide; ++i) {
      layer.table.push_back(static_cast<uint8_t>(rng() % kProfileTables));
    }
    out.layers.push_back(std::move(layer));
  }
  return out;
}

// Null when the options break a limit.
inline std::shared_ptr<const CodecProfile> TinyProfile(const TinyProfileOptions& options) {
  absl::StatusOr<std::string> bytes = WriteProfile(TinyProfileContent(options));
  if (!bytes.ok()) return nullptr;
  auto profile = CodecProfile::Parse(*std::move(bytes));
  return profile.ok() ? *profile : nullptr;
}

inline constexpr int32_t kTinyVocabulary = 1000;

inline TokenEmbedding TinyEmbedding(uint32_t width) {
  return {.width = width, .rows = [width](std::span<const int32_t> tokens, float* out) {
            for (const int32_t token : tokens) {
              if (token < 0 || token >= kTinyVocabulary) {
                return absl::InvalidArgumentError(absl::StrCat("no token ", token));
              }
              std::mt19937 rng(static_cast<uint32_t>(token));
              for (const float v : tiny::Numbers(rng, width, 1024)) *out++ = v;
            }
            return absl::OkStatus();
          }};
}

// K (after RoPE) and V of all layers of a column, multiples of 1/1024 within `most` / 1024.
struct TinyColumn {
  BlockShape shape;
  uint32_t first_token = 0;
  std::vector<int32_t> tokens;
  std::vector<std::vector<uint16_t>> k, v;  // [layers] of [kv_heads][tokens][head_dim] f16 bits
  std::vector<const uint16_t*> k_of_layer, v_of_layer;

  TinyColumn(const KvGeometry& g, uint32_t n, uint32_t first, uint32_t seed, int most = 3000)
      : shape{g.kv_heads, n, g.head_dim}, first_token(first) {
    std::mt19937 rng(seed);
    for (uint32_t t = 0; t < n; ++t) {
      tokens.push_back(static_cast<int32_t>(rng() % static_cast<uint32_t>(kTinyVocabulary)));
    }
    for (uint32_t l = 0; l < g.layers; ++l) {
      for (auto* side : {&k, &v}) {
        side->emplace_back(shape.elements());
        kernels::FloatToHalf(tiny::Numbers(rng, shape.elements(), most).data(), side->back().data(),
                             shape.elements());
      }
    }
    for (const auto& layer : k) k_of_layer.push_back(layer.data());
    for (const auto& layer : v) v_of_layer.push_back(layer.data());
  }
  TinyColumn(const TinyColumn&) = delete;
  TinyColumn& operator=(const TinyColumn&) = delete;

  ColumnInput input() const {
    return {.shape = shape,
            .first_token = first_token,
            .tokens = tokens,
            .k = k_of_layer,
            .v = v_of_layer};
  }
};

}  // namespace sparkv::testing
