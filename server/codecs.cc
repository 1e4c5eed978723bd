#include "server/codecs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/codec/dec_aatc.h"
#include "common/codec/enc_aatc.h"

namespace sparkv {

absl::Status ServerCodec::CheckBlock(uint32_t layer, const BlockShape& shape,
                                     std::span<const std::string> planes,
                                     std::span<const uint16_t> k,
                                     std::span<const uint16_t> v) const {
  std::vector<std::span<const uint8_t>> views;
  for (const std::string& plane : planes) views.push_back(AsBytes(plane));
  if (residual_decoder != nullptr) {
    return layer == 0 ? absl::OkStatus() : residual_decoder->Read(layer, shape, views).status();
  }
  std::vector<uint16_t> got_k(shape.elements()), got_v(shape.elements());
  RETURN_IF_ERROR(block_decoder->DecodeBlock(shape, views, got_k.data(), got_v.data()));
  if (info().lossless && (!std::equal(got_k.begin(), got_k.end(), k.begin(), k.end()) ||
                          !std::equal(got_v.begin(), got_v.end(), v.begin(), v.end()))) {
    return absl::DataLossError("decodes to other values");
  }
  return absl::OkStatus();
}

absl::Status ServerCodecs::AddProfile(const std::string& path, const Prefiller& prefiller) {
  ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kMaxProfileBytes));
  const auto at_path = [&path](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat("profile ", path, ": ", status.message()));
  };
  absl::StatusOr<std::shared_ptr<const CodecProfile>> parsed =
      CodecProfile::Parse(std::move(bytes));
  if (!parsed.ok()) return at_path(parsed.status());
  const ProfileShape& shape = (*parsed)->shape();
  const absl::StatusOr<const CodecInfo*> info = ProfileCodec(**parsed);
  if (!info.ok()) return at_path(info.status());
  if (shape.model_fingerprint != prefiller.fingerprint()) {
    return at_path(absl::FailedPreconditionError(
        absl::StrCat("it is of another model (fingerprint ", DigestToHex(shape.model_fingerprint),
                     "); this server has ", prefiller.model_name(), " (",
                     DigestToHex(prefiller.fingerprint()), ")")));
  }
  if (!(shape.geometry == prefiller.geometry())) {
    return at_path(absl::FailedPreconditionError(
        absl::StrCat("its K and V are ", shape.geometry.ToString(), ", the model's are ",
                     prefiller.geometry().ToString())));
  }
  for (const ServerCodec& codec : codecs_) {
    if (codec.info().name != (*info)->name) continue;
    return at_path(absl::FailedPreconditionError(absl::StrCat("a second profile of codec ",
                                                              std::string((*info)->name),
                                                              "; one for each codec is allowed")));
  }
  absl::StatusOr<std::unique_ptr<ColumnEncoder>> encoder =
      MakeResidualEncoder(*parsed, prefiller.token_embedding());
  if (!encoder.ok()) return at_path(encoder.status());
  absl::StatusOr<std::unique_ptr<ResidualDecoder>> decoder =
      MakeResidualDecoder(*parsed, prefiller.token_embedding());
  if (!decoder.ok()) return at_path(decoder.status());
  codecs_.push_back({.encoder = *std::move(encoder),
                     .residual_decoder = *std::move(decoder),
                     .profile = *std::move(parsed)});
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ServerCodecs>> ServerCodecs::Create(
    const std::vector<std::string>& profiles, const Prefiller& prefiller,
    std::string_view default_codec) {
  std::unique_ptr<ServerCodecs> codecs(new ServerCodecs);
  for (const std::string& name : CodecNames()) {
    ASSIGN_OR_RETURN(const BlockEncoder* const encoder, FindEncoder(name));
    ASSIGN_OR_RETURN(const BlockDecoder* const decoder, FindDecoder(name));
    codecs->codecs_.push_back({.encoder = MakeColumnEncoder(encoder), .block_decoder = decoder});
  }
  for (const std::string& path : profiles) {
    RETURN_IF_ERROR(codecs->AddProfile(path, prefiller));
  }
  std::string first(default_codec);
  for (const ServerCodec& codec : codecs->codecs_) {
    codecs->names_.emplace_back(codec.info().name);
    if (default_codec.empty() && &codec.info() == &AatcPredInfo()) first = codecs->names_.back();
  }
  if (first.empty()) first = kDefaultCodec;
  const absl::StatusOr<const ServerCodec*> found = codecs->Find(first);
  if (!found.ok()) {
    return absl::Status(found.status().code(),
                        absl::StrCat("codec: the default ", found.status().message()));
  }
  const auto at = std::find(codecs->names_.begin(), codecs->names_.end(), first);
  std::rotate(codecs->names_.begin(), at, at + 1);
  return codecs;
}

absl::StatusOr<const ServerCodec*> ServerCodecs::Find(std::string_view name) const {
  for (const ServerCodec& codec : codecs_) {
    if (codec.info().name == name) return &codec;
  }
  const bool known = name == AatcInfo().name || name == AatcPredInfo().name;
  return absl::FailedPreconditionError(absl::StrCat(
      "codec \"", std::string(name), "\" ",
      known ? "needs a profile of this model, which this server was not given" : "is not supported",
      "; supported: ", absl::StrJoin(names_, ", ")));
}

absl::StatusOr<std::shared_ptr<const CodecProfile>> ServerCodecs::FindProfile(
    const Digest& digest) const {
  for (const ServerCodec& codec : codecs_) {
    if (codec.profile && codec.profile->digest() == digest) return codec.profile;
  }
  return absl::NotFoundError(
      absl::StrCat("no profile ", DigestToHex(digest), "; GetServerInfo names those there are"));
}

std::vector<const ServerCodec*> ServerCodecs::WithProfile() const {
  std::vector<const ServerCodec*> out;
  for (const ServerCodec& codec : codecs_) {
    if (codec.profile) out.push_back(&codec);
  }
  return out;
}

std::vector<std::string> AllCodecNames() {
  std::vector<std::string> names = CodecNames();
  names.emplace_back(AatcInfo().name);
  names.emplace_back(AatcPredInfo().name);
  return names;
}

}  // namespace sparkv
