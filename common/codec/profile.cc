#include "common/codec/profile.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/crc32c.h"
#include "common/codec/format.h"
#include "common/codec/residual_common.h"

namespace sparkv {
namespace {

// Bytes of 32 values; both types begin with an f16 scale.
uint32_t BlockBytes(kernels::GgmlType type) { return type == kernels::GgmlType::kQ4_0 ? 18 : 34; }

uint64_t MatrixBytes(kernels::GgmlType type, uint32_t rows, uint32_t cols) {
  return uint64_t{rows} * (cols / 32) * BlockBytes(type);
}

absl::StatusOr<ProfileMatrix> ReadMatrix(ByteReader& reader, kernels::GgmlType type, uint32_t rows,
                                         uint32_t cols, std::string_view what) {
  ASSIGN_OR_RETURN(const auto bytes, reader.ReadBytes(MatrixBytes(type, rows, cols), what));
  for (size_t at = 0; at < bytes.size(); at += BlockBytes(type)) {
    uint16_t scale;
    std::memcpy(&scale, bytes.data() + at, 2);
    if ((scale & 0x7C00) == 0x7C00) {
      return absl::DataLossError(
          absl::StrCat(std::string(what), ": the scale at byte ", at, " is not finite"));
    }
  }
  return ProfileMatrix{type, bytes.data(), rows, cols};
}

absl::StatusOr<ProfileShape> ReadShape(ByteReader& reader) {
  ProfileShape s;
  ASSIGN_OR_RETURN(s.codec_id, reader.Read<uint32_t>("profile codec id"));
  ASSIGN_OR_RETURN(s.codec_version, reader.Read<uint16_t>("profile codec version"));
  ASSIGN_OR_RETURN(s.planes, reader.Read<uint8_t>("profile planes"));
  ASSIGN_OR_RETURN(const uint8_t type, reader.Read<uint8_t>("profile prediction type"));
  ASSIGN_OR_RETURN(s.geometry.layers, reader.Read<uint32_t>("profile layers"));
  ASSIGN_OR_RETURN(s.geometry.kv_heads, reader.Read<uint32_t>("profile kv_heads"));
  ASSIGN_OR_RETURN(s.geometry.head_dim, reader.Read<uint32_t>("profile head_dim"));
  ASSIGN_OR_RETURN(s.d_model, reader.Read<uint32_t>("profile d_model"));
  ASSIGN_OR_RETURN(s.group, reader.Read<uint32_t>("profile group"));
  ASSIGN_OR_RETURN(s.rank_below, reader.Read<uint32_t>("profile rank_below"));
  ASSIGN_OR_RETURN(s.rank_token, reader.Read<uint32_t>("profile rank_token"));
  ASSIGN_OR_RETURN(const uint8_t rope, reader.Read<uint8_t>("profile rope"));
  ASSIGN_OR_RETURN(const uint8_t zero, reader.Read<uint8_t>("profile rope"));
  ASSIGN_OR_RETURN(const uint16_t pairs, reader.Read<uint16_t>("profile rope pairs"));
  ASSIGN_OR_RETURN(s.step, reader.Read<float>("profile step"));
  ASSIGN_OR_RETURN(const auto fingerprint, reader.ReadBytes(32, "profile model fingerprint"));
  std::memcpy(s.model_fingerprint.data(), fingerprint.data(), 32);
  s.predict_type = static_cast<kernels::GgmlType>(type);
  if ((rope != 1 && rope != 2) || zero != 0) {
    return absl::DataLossError(absl::StrCat("profile: rope pairing ", rope, ", allowed 1, 2"));
  }
  s.rope = static_cast<RopePairs>(rope);
  if (pairs > kMaxHeadDim / 2) {
    return absl::DataLossError(
        absl::StrCat("profile: ", pairs, " rope pairs; at most ", kMaxHeadDim / 2));
  }
  for (uint32_t i = 0; i < pairs; ++i) {
    ASSIGN_OR_RETURN(const double f, reader.Read<double>("profile rope frequency"));
    s.frequency.push_back(f);
  }
  const absl::Status valid = s.Validate();
  if (!valid.ok()) return absl::DataLossError(valid.message());
  return s;
}

}  // namespace

absl::Status ProfileShape::Validate() const {
  RETURN_IF_ERROR(geometry.Validate());
  const auto check = [](uint64_t value, uint64_t least, uint64_t most, uint64_t unit,
                        std::string_view what) {
    if (value >= least && value <= most && value % unit == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("profile: ", std::string(what), " is ", value, "; allowed ", least, "..", most,
                     unit > 1 ? absl::StrCat(" in steps of ", unit) : ""));
  };
  RETURN_IF_ERROR(check(geometry.layers, 2, kMaxLayers, 1, "layers"));
  RETURN_IF_ERROR(check(planes, 1, kMaxResidualPlanes, 1, "planes"));
  RETURN_IF_ERROR(check(d_model, 1, kMaxModelWidth, predicts() ? 32 : 1, "d_model"));
  RETURN_IF_ERROR(check(group, 32, kMaxTransformGroup, 32, "group"));
  RETURN_IF_ERROR(check(rank_below, 0, kMaxPredictionRank, 32, "rank_below"));
  RETURN_IF_ERROR(check(rank_token, 0, kMaxPredictionRank, 32, "rank_token"));
  if (row() % group != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("profile: group ", group, " does not divide ", row(), " values of K"));
  }
  if (predict_type != kernels::GgmlType::kQ8_0 && predict_type != kernels::GgmlType::kQ4_0) {
    return absl::InvalidArgumentError(absl::StrCat("profile: prediction type ",
                                                   static_cast<uint32_t>(predict_type),
                                                   "; allowed 2 (Q4_0), 8 (Q8_0)"));
  }
  RETURN_IF_ERROR(check(frequency.size(), 0, geometry.head_dim / 2, 1, "rope pairs"));
  for (const double f : frequency) {
    if (!(std::abs(f) <= kMaxRopeFrequency)) {
      return absl::InvalidArgumentError(
          absl::StrCat("profile: a rope frequency is ", f, "; allowed up to ", kMaxRopeFrequency));
    }
  }
  if (!(step >= kMinProfileStep && step <= kMaxProfileStep)) {
    return absl::InvalidArgumentError(absl::StrCat("profile: step is ", step, "; allowed ",
                                                   kMinProfileStep, "..", kMaxProfileStep));
  }
  if (FileBytes() > kMaxProfileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("profile: would have ", FileBytes(), " bytes; at most ", kMaxProfileBytes));
  }
  return absl::OkStatus();
}

uint64_t ProfileShape::FileBytes() const {
  const uint32_t wide = 2 * row();
  const auto q8 = kernels::GgmlType::kQ8_0;
  const uint64_t layer =
      uint64_t{4} * wide + MatrixBytes(predict_type, projects_below() ? rank_below : 0, wide) +
      MatrixBytes(predict_type, wide, rank()) + MatrixBytes(q8, wide, group) + wide;
  return kProfilePreludeBytes + 8 * frequency.size() + MatrixBytes(q8, rank_token, d_model) +
         uint64_t{2} * kProfileTables * kProfileSymbols + layer * (geometry.layers - 1) + 4;
}

absl::StatusOr<std::shared_ptr<const CodecProfile>> CodecProfile::Parse(std::string bytes) {
  std::shared_ptr<CodecProfile> p(new CodecProfile);
  p->bytes_ = std::move(bytes);
  const auto all = AsBytes(p->bytes_);
  ByteReader reader(all);
  ASSIGN_OR_RETURN(const auto magic, reader.ReadBytes(sizeof(kProfileMagic), "profile magic"));
  if (std::memcmp(magic.data(), kProfileMagic, sizeof(kProfileMagic)) != 0) {
    return absl::DataLossError("profile: bad magic, this is not a codec profile");
  }
  ASSIGN_OR_RETURN(const uint16_t version, reader.Read<uint16_t>("profile version"));
  if (version != kProfileFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("profile format version ", version,
                     " is not supported; supported: ", kProfileFormatVersion));
  }
  ASSIGN_OR_RETURN(const uint16_t zero, reader.Read<uint16_t>("profile flags"));
  if (zero != 0)
    return absl::DataLossError(absl::StrCat("profile: flags are ", zero, "; allowed 0"));
  ASSIGN_OR_RETURN(const uint32_t file_bytes, reader.Read<uint32_t>("profile file bytes"));
  if (file_bytes != all.size()) {
    return absl::DataLossError(
        absl::StrCat("profile: has ", all.size(), " bytes; the header says ", file_bytes));
  }
  if (all.size() > kMaxProfileBytes) {
    return absl::DataLossError(
        absl::StrCat("profile: has ", all.size(), " bytes; at most ", kMaxProfileBytes));
  }
  if (all.size() < kProfilePreludeBytes + 4) return absl::DataLossError("profile: cut short");
  ByteReader crc_reader(all.last(4));
  ASSIGN_OR_RETURN(const uint32_t want, crc_reader.Read<uint32_t>("profile CRC"));
  const uint32_t crc = Crc32c(all.first(all.size() - 4));
  if (crc != want) {
    return absl::DataLossError(absl::StrCat("profile: CRC-32C is ", absl::Hex(crc, absl::kZeroPad8),
                                            "; it says ", absl::Hex(want, absl::kZeroPad8)));
  }
  ASSIGN_OR_RETURN(p->shape_, ReadShape(reader));
  const ProfileShape& s = p->shape_;
  if (s.FileBytes() != all.size()) {
    return absl::DataLossError(
        absl::StrCat("profile: has ", all.size(), " bytes; its shape needs ", s.FileBytes()));
  }
  ASSIGN_OR_RETURN(p->token_, ReadMatrix(reader, kernels::GgmlType::kQ8_0, s.rank_token, s.d_model,
                                         "profile token matrix"));
  p->frequencies_.resize(size_t{kProfileTables} * kProfileSymbols);
  for (uint32_t t = 0; t < kProfileTables; ++t) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < kProfileSymbols; ++i) {
      ASSIGN_OR_RETURN(const uint16_t f, reader.Read<uint16_t>("profile frequency"));
      p->frequencies_[size_t{t} * kProfileSymbols + i] = f;
      sum += f;
    }
    if (sum != 4096 || p->frequencies_.at(size_t{t} * kProfileSymbols + kEscapeSymbol) == 0) {
      return absl::DataLossError(
          absl::StrCat("profile: table ", t, " sums to ", sum, ", not 4096, or has no escape"));
    }
  }
  const uint32_t wide = 2 * s.row();
  p->offsets_.resize(size_t{wide} * (s.geometry.layers - 1));
  p->layers_.resize(s.geometry.layers - 1);
  for (uint32_t l = 1; l < s.geometry.layers; ++l) {
    ProfileLayer& layer = p->layers_[l - 1];
    const std::string what = absl::StrCat("profile layer ", l);
    float* offset = p->offsets_.data() + size_t{wide} * (l - 1);
    ASSIGN_OR_RETURN(const auto raw, reader.ReadBytes(uint64_t{4} * wide, what));
    std::memcpy(offset, raw.data(), raw.size());
    for (uint32_t i = 0; i < wide; ++i) {
      if (!std::isfinite(offset[i])) {
        return absl::DataLossError(absl::StrCat(what, ": offset ", i, " is not finite"));
      }
    }
    layer.offset = {offset, wide};
    ASSIGN_OR_RETURN(layer.below, ReadMatrix(reader, s.predict_type,
                                             s.projects_below() ? s.rank_below : 0, wide, what));
    ASSIGN_OR_RETURN(layer.predict, ReadMatrix(reader, s.predict_type, wide, s.rank(), what));
    for (uint32_t g = 0; g < 2 * s.groups(); ++g) {
      ASSIGN_OR_RETURN(const ProfileMatrix m,
                       ReadMatrix(reader, kernels::GgmlType::kQ8_0, s.group, s.group, what));
      layer.inverse.push_back(m);
    }
    ASSIGN_OR_RETURN(layer.table, reader.ReadBytes(wide, what));
    for (uint32_t i = 0; i < wide; ++i) {
      if (layer.table[i] >= kProfileTables) {
        return absl::DataLossError(absl::StrCat(what, ": table ", layer.table[i], " of component ",
                                                i, "; allowed 0..", kProfileTables - 1));
      }
    }
  }
  p->digest_ = Sha256().Update(all).Finish();
  return std::shared_ptr<const CodecProfile>(std::move(p));
}

}  // namespace sparkv
