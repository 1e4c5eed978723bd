// The codecs that a server offers: those that need no profile, and those that its model profiles
// are for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/sha256.h"
#include "common/codec/codec.h"
#include "common/codec/enc_codec.h"
#include "common/codec/profile.h"
#include "common/codec/residual.h"
#include "server/prefiller.h"

namespace sparkv {

// One codec, ready to encode; one of block_decoder and residual_decoder reads back what it wrote.
struct ServerCodec {
  std::unique_ptr<const ColumnEncoder> encoder;
  const BlockDecoder* block_decoder = nullptr;
  std::unique_ptr<const ResidualDecoder> residual_decoder;
  std::shared_ptr<const CodecProfile> profile;  // null: it needs none

  const CodecInfo& info() const { return encoder->info(); }
  // Null without a profile.
  const Digest* profile_digest() const { return profile ? &profile->digest() : nullptr; }
  // DataLoss unless the planes of `layer` decode; for a lossless codec also unless they give k and
  // v. Layer 0 of a codec that never sends it is not looked at.
  absl::Status CheckBlock(uint32_t layer, const BlockShape& shape,
                          std::span<const std::string> planes, std::span<const uint16_t> k,
                          std::span<const uint16_t> v) const;
};

// Immutable and thread-safe.
class ServerCodecs {
 public:
  // `profiles`: the files' names, each read and checked. `default_codec`: the operator's choice;
  // empty: aatc-pred where a profile is for it, else kDefaultCodec. NotFound and the like for a
  // file, DataLoss for one that is no profile, FailedPrecondition for a profile of another model,
  // of an unknown codec or of one that has a profile already, and for a default codec that is not
  // among those that there are: the message names files and fingerprints.
  static absl::StatusOr<std::unique_ptr<ServerCodecs>> Create(
      const std::vector<std::string>& profiles, const Prefiller& prefiller,
      std::string_view default_codec);

  // Names, the default first.
  const std::vector<std::string>& names() const { return names_; }
  // FailedPrecondition names the codecs there are.
  absl::StatusOr<const ServerCodec*> Find(std::string_view name) const;
  // NotFound for any other digest.
  absl::StatusOr<std::shared_ptr<const CodecProfile>> FindProfile(const Digest& digest) const;
  // Those with a profile, in the order of the files.
  std::vector<const ServerCodec*> WithProfile() const;

 private:
  ServerCodecs() = default;
  absl::Status AddProfile(const std::string& path, const Prefiller& prefiller);

  std::vector<ServerCodec> codecs_;
  std::vector<std::string> names_;
};

// Names that some server can offer: those of CodecNames and those that need a profile.
std::vector<std::string> AllCodecNames();

}  // namespace sparkv
