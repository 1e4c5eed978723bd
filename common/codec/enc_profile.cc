#include "common/codec/enc_profile.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/crc32c.h"
#include "common/base/status.h"
#include "kernels/half.h"

namespace sparkv {
namespace {

constexpr size_t kStepOffset = 56;  // of the step in the file

}  // namespace

absl::StatusOr<std::string> WriteProfile(const ProfileContent& content) {
  const ProfileShape& s = content.shape;
  RETURN_IF_ERROR(s.Validate());
  if (content.layers.size() + 1 != s.geometry.layers ||
      content.frequencies.size() != size_t{kProfileTables} * kProfileSymbols) {
    return absl::InvalidArgumentError(absl::StrCat("profile: content of ", content.layers.size(),
                                                   " layers and ", content.frequencies.size(),
                                                   " frequencies"));
  }
  const auto beyond_16_bits = [](uint32_t v) { return v > 0xFFFF; };
  if (beyond_16_bits(s.codec_version) ||
      std::any_of(content.frequencies.begin(), content.frequencies.end(), beyond_16_bits)) {
    return absl::InvalidArgumentError("profile: the codec version or a frequency is above 65535");
  }
  ByteWriter out;
  out.WriteBytes(std::string_view(kProfileMagic, sizeof(kProfileMagic)));
  out.Write<uint16_t>(kProfileFormatVersion);
  out.Write<uint16_t>(0);
  out.Write<uint32_t>(static_cast<uint32_t>(s.FileBytes()));
  out.Write<uint32_t>(s.codec_id);
  out.Write<uint16_t>(static_cast<uint16_t>(s.codec_version));
  out.Write<uint8_t>(static_cast<uint8_t>(s.planes));
  out.Write<uint8_t>(static_cast<uint8_t>(s.predict_type));
  for (const uint32_t v : {s.geometry.layers, s.geometry.kv_heads, s.geometry.head_dim, s.d_model,
                           s.group, s.rank_below, s.rank_token}) {
    out.Write(v);
  }
  out.Write<uint8_t>(static_cast<uint8_t>(s.rope));
  out.Write<uint8_t>(0);
  out.Write<uint16_t>(static_cast<uint16_t>(s.frequency.size()));
  out.Write(s.step);
  out.WriteBytes(s.model_fingerprint);
  for (const double f : s.frequency) out.Write(f);
  out.WriteBytes(content.token);
  for (const uint32_t f : content.frequencies) out.Write<uint16_t>(static_cast<uint16_t>(f));
  for (const ProfileContent::Layer& layer : content.layers) {
    for (const float v : layer.offset) out.Write(v);
    out.WriteBytes(layer.below);
    out.WriteBytes(layer.predict);
    out.WriteBytes(layer.inverse);
    out.WriteBytes(layer.table);
  }
  out.Write<uint32_t>(Crc32c(AsBytes(out.str())));
  std::string bytes = out.Take();
  // What was written must be readable: sizes, tables and numbers are checked there.
  const auto parsed = CodecProfile::Parse(bytes);
  if (!parsed.ok()) return absl::InvalidArgumentError(parsed.status().message());
  return bytes;
}

absl::StatusOr<std::string> WithStep(const CodecProfile& profile, float step) {
  std::string bytes(profile.bytes());
  std::memcpy(bytes.data() + kStepOffset, &step, 4);
  const uint32_t crc = Crc32c(AsBytes(bytes).first(bytes.size() - 4));
  std::memcpy(bytes.data() + bytes.size() - 4, &crc, 4);
  const auto parsed = CodecProfile::Parse(bytes);
  if (!parsed.ok()) return absl::InvalidArgumentError(parsed.status().message());
  return bytes;
}

std::string QuantizeRows(kernels::GgmlType type, std::span<const float> values) {
  ByteWriter out;
  for (size_t at = 0; at + 32 <= values.size(); at += 32) {
    const float* x = values.data() + at;
    const float* largest =
        std::max_element(x, x + 32, [](float a, float b) { return std::abs(a) < std::abs(b); });
    if (type == kernels::GgmlType::kQ4_0) {
      const uint16_t scale = kernels::FloatToHalf(*largest / -8.0f);
      const float d = kernels::HalfToFloat(scale);
      out.Write(scale);
      const auto code = [d](float v) {
        const float q = d == 0 ? 8.0f : std::floor(v / d + 8.5f);
        return static_cast<uint32_t>(std::min(std::max(q, 0.0f), 15.0f));
      };
      for (int i = 0; i < 16; ++i) {
        out.Write<uint8_t>(static_cast<uint8_t>(code(x[i]) | code(x[i + 16]) << 4));
      }
    } else {
      const uint16_t scale = kernels::FloatToHalf(std::abs(*largest) / 127.0f);
      const float d = kernels::HalfToFloat(scale);
      out.Write(scale);
      for (int i = 0; i < 32; ++i) {
        const float q = d == 0 ? 0.0f : std::nearbyint(x[i] / d);
        out.Write<int8_t>(static_cast<int8_t>(std::min(std::max(q, -127.0f), 127.0f)));
      }
    }
  }
  return out.Take();
}

}  // namespace sparkv
