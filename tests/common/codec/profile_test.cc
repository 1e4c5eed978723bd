#include "common/codec/profile.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "common/base/bytes.h"
#include "common/base/crc32c.h"
#include "common/codec/enc_profile.h"
#include "common/codec/residual_common.h"
#include "kernels/gguf_dequant.h"
#include "tests/catch.h"
#include "tests/common/codec/codec_testing.h"
#include "tests/testing/tiny_profile.h"

namespace sparkv {
namespace {

using testing::TinyProfile;
using testing::TinyProfileContent;
using testing::TinyProfileOptions;

// With a CRC that fits what it holds now.
std::string Sealed(std::string bytes) {
  const uint32_t crc = Crc32c(AsBytes(bytes).first(bytes.size() - 4));
  std::memcpy(bytes.data() + bytes.size() - 4, &crc, 4);
  return bytes;
}

template <typename T>
std::string With(std::string bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
  return Sealed(std::move(bytes));
}

std::string TinyBytes(const TinyProfileOptions& options = {}) {
  auto bytes = WriteProfile(TinyProfileContent(options));
  REQUIRE_OK(bytes);
  return *std::move(bytes);
}

void Refused(const std::string& bytes, std::string_view why,
             absl::StatusCode code = absl::StatusCode::kDataLoss) {
  const absl::Status s = CodecProfile::Parse(bytes).status();
  CAPTURE(s.ToString(), why);
  CHECK(s.code() == code);
  CHECK(s.message().find(absl::string_view(why.data(), why.size())) != absl::string_view::npos);
}

}  // namespace

TEST_CASE("profile: what is written is read again") {
  for (const bool predicts : {false, true}) {
    TinyProfileOptions options;
    options.rope = RopePairs::kSplitHalf;
    options.predict_type = kernels::GgmlType::kQ4_0;
    if (!predicts) options.rank_below = options.rank_token = 0;
    const ProfileContent content = TinyProfileContent(options);
    const std::string bytes = TinyBytes(options);
    const auto parsed = CodecProfile::Parse(bytes);
    REQUIRE_OK(parsed);
    const CodecProfile& p = **parsed;
    CHECK(p.bytes() == bytes);
    CHECK(p.digest() == Sha256().Update(bytes).Finish());
    const ProfileShape& s = p.shape();
    CHECK(s.codec_id == (predicts ? 7 : 6));
    CHECK(s.codec_version == 1);
    CHECK(s.planes == 5);
    CHECK(s.geometry == options.geometry);
    CHECK(s.d_model == 32);
    CHECK(s.group == 32);
    CHECK(s.rank_below == options.rank_below);
    CHECK(s.rank_token == options.rank_token);
    CHECK(s.predict_type == kernels::GgmlType::kQ4_0);
    CHECK(s.rope == RopePairs::kSplitHalf);
    CHECK(s.frequency == content.shape.frequency);
    CHECK(s.step == 0.5f);
    CHECK(std::equal(p.frequencies().begin(), p.frequencies().end(), content.frequencies.begin()));
    for (uint32_t l = 1; l < 3; ++l) {
      const ProfileLayer& layer = p.layer(l);
      const ProfileContent::Layer& want = content.layers[l - 1];
      CHECK(std::equal(layer.offset.begin(), layer.offset.end(), want.offset.begin()));
      CHECK(std::equal(layer.table.begin(), layer.table.end(), want.table.begin()));
      CHECK(layer.inverse.size() == 2);
      CHECK(std::memcmp(layer.inverse[1].data, want.inverse.data() + want.inverse.size() / 2,
                        want.inverse.size() / 2) == 0);
      CHECK(layer.predict.rows == 64);
      CHECK(std::memcmp(layer.predict.data, want.predict.data(), want.predict.size()) == 0);
    }
  }
}

TEST_CASE("profile: the same options give the same bytes, another step another name") {
  const std::string bytes = TinyBytes();
  CHECK(TinyBytes() == bytes);
  TinyProfileOptions other;
  other.seed = 2;
  CHECK(TinyBytes(other) != bytes);
  const auto p = TinyProfile({});
  const auto coarser = WithStep(*p, 2.0f);
  REQUIRE_OK(coarser);
  const auto parsed = CodecProfile::Parse(*coarser);
  REQUIRE_OK(parsed);
  CHECK((*parsed)->shape().step == 2.0f);
  CHECK((*parsed)->digest() != p->digest());
  CHECK(*WithStep(**parsed, 0.5f) == bytes);
  for (const float step : {0.0f, -1.0f, INFINITY, NAN, 1e-30f, 1e30f}) {
    CHECK(WithStep(*p, step).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("profile: every flipped bit and every truncation is refused") {
  const std::string bytes =
      TinyBytes({.geometry = {2, 1, 32, KvDtype::kF16}, .rank_below = 0, .rank_token = 0});
  std::string flipped = bytes;
  for (size_t at = 0; at < bytes.size(); ++at) {
    // All bits of what is looked at before the CRC, and one of each byte behind it.
    for (int bit = 0; bit < (at < 92 ? 8 : 1); ++bit) {
      const int mask = at < 92 ? 1 << bit : 1 << at % 8;
      flipped[at] = static_cast<char>(flipped[at] ^ mask);
      const absl::StatusCode code = CodecProfile::Parse(flipped).status().code();
      REQUIRE((code == absl::StatusCode::kDataLoss ||
               (code == absl::StatusCode::kFailedPrecondition && (at == 8 || at == 9))));
      flipped[at] = bytes[at];
    }
  }
  for (size_t n = 0; n < bytes.size(); n = n < 200 ? n + 1 : n + 97) {
    Refused(bytes.substr(0, n), "profile");
    // A file that says that it is just so long.
    if (n >= 100) Refused(With(bytes.substr(0, n), 12, static_cast<uint32_t>(n)), "profile");
  }
  Refused(bytes + '\0', "the header says");
}

TEST_CASE("profile: fields beyond their limits are refused by name") {
  const std::string bytes = TinyBytes();
  Refused("SPKVCOL\x1a" + bytes.substr(8), "bad magic");
  Refused(With<uint16_t>(bytes, 8, 2), "version 2 is not supported; supported: 1",
          absl::StatusCode::kFailedPrecondition);
  Refused(With<uint16_t>(bytes, 10, 1), "flags are 1");
  Refused(With<uint8_t>(bytes, 22, 0), "planes is 0; allowed 1..5");
  Refused(With<uint8_t>(bytes, 22, 6), "planes is 6");
  Refused(With<uint8_t>(bytes, 23, 3), "prediction type 3");
  Refused(With<uint32_t>(bytes, 24, 1), "layers is 1; allowed 2..");
  Refused(With<uint32_t>(bytes, 24, 1025), "layers");
  Refused(With<uint32_t>(bytes, 28, 0), "kv_heads");
  Refused(With<uint32_t>(bytes, 32, 0xFFFFFFFF), "head_dim");
  Refused(With<uint32_t>(bytes, 36, 33), "d_model is 33");
  Refused(With<uint32_t>(bytes, 36, 1u << 17), "d_model");
  Refused(With<uint32_t>(bytes, 40, 48), "group is 48");
  Refused(With<uint32_t>(bytes, 40, 64), "group 64 does not divide 32");
  Refused(With<uint32_t>(bytes, 44, 33), "rank_below is 33");
  Refused(With<uint32_t>(bytes, 48, 1056), "rank_token is 1056");
  Refused(With<uint8_t>(bytes, 52, 0), "rope pairing 0");
  Refused(With<uint8_t>(bytes, 53, 1), "rope");
  Refused(With<uint16_t>(bytes, 54, 0xFFFF), "65535 rope pairs");
  Refused(With<uint16_t>(bytes, 54, 9), "rope pairs is 9");
  Refused(With<float>(bytes, 56, 0.0f), "step is 0");
  Refused(With<float>(bytes, 56, std::numeric_limits<float>::quiet_NaN()), "step");
  Refused(With<double>(bytes, 92, INFINITY), "rope frequency is inf");
  Refused(With<double>(bytes, 92, 1e9), "rope frequency");
  // More layers, heads or channels need a longer file, and are refused before they are allocated.
  Refused(With<uint32_t>(bytes, 24, 1000), "its shape needs");
  Refused(With<uint32_t>(bytes, 28, 1024), "its shape needs");
  const size_t token = 92 + 8 * 8;
  Refused(With<uint16_t>(bytes, token, 0x7C00), "token matrix: the scale at byte 0 is not finite");
  const size_t tables = token + 32 * 34;
  Refused(With<uint16_t>(bytes, tables, 4095), "table 0 sums to");
  uint16_t first, escape;
  std::memcpy(&first, bytes.data() + tables, 2);
  std::memcpy(&escape, bytes.data() + tables + 2 * kEscapeSymbol, 2);
  std::string no_escape = With(bytes, tables, static_cast<uint16_t>(first + escape));
  Refused(With<uint16_t>(no_escape, tables + 2 * kEscapeSymbol, 0), "has no escape");
  const size_t layer = tables + 2 * 64 * 256;
  Refused(With<float>(bytes, layer + 8, INFINITY), "layer 1: offset 2 is not finite");
  Refused(With<uint16_t>(bytes, layer + 256, 0xFE00), "layer 1: the scale at byte 0");
  Refused(With<uint8_t>(bytes, bytes.size() - 5, 64), "layer 2: table 64 of component 63");
}

TEST_CASE("profile: content that does not fit its shape is not written") {
  const auto refused = [](const ProfileContent& content) {
    return WriteProfile(content).status().code() == absl::StatusCode::kInvalidArgument;
  };
  ProfileContent good = TinyProfileContent({});
  CHECK_FALSE(refused(good));
  ProfileContent bad = good;
  bad.layers.pop_back();
  CHECK(refused(bad));
  bad = good;
  bad.frequencies[0] += 1;
  CHECK(refused(bad));
  bad = good;
  bad.layers[0].inverse.pop_back();
  CHECK(refused(bad));
  bad = good;
  bad.layers[0].table[0] = 64;
  CHECK(refused(bad));
  bad = good;
  bad.shape.step = 0;
  CHECK(refused(bad));
  bad = good;
  bad.layers[1].offset[3] = NAN;
  CHECK(refused(bad));
  bad = good;
  bad.frequencies[0] += 65536;  // the same in 16 bits
  CHECK(refused(bad));
  bad = good;
  bad.shape.codec_version = 65537;
  CHECK(refused(bad));
}

TEST_CASE("profile: rows as Q8_0 and Q4_0 stay within half a code") {
  testing::Normal normal(3);
  std::vector<float> x(320), back(320);
  for (float& v : x) v = normal();
  std::fill_n(x.begin(), 32, 0.0f);
  for (const auto type : {kernels::GgmlType::kQ8_0, kernels::GgmlType::kQ4_0}) {
    const std::string rows = QuantizeRows(type, x);
    REQUIRE_OK(kernels::DequantizeRow(type, rows.data(), back.data(), 320));
    for (size_t b = 0; b < 320; b += 32) {
      float most = 0;
      for (size_t i = b; i < b + 32; ++i) most = std::max(most, std::abs(x[i]));
      // Q4_0 has no code for the largest value's negative.
      const float limit = type == kernels::GgmlType::kQ8_0 ? most / 127 * 0.52f : most / 8 * 1.01f;
      for (size_t i = b; i < b + 32; ++i) CHECK(std::abs(x[i] - back[i]) <= limit);
    }
  }
}

}  // namespace sparkv
