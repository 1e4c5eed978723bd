#include "common/codec/codec.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/codec/dec_cachegen.h"
#include "common/codec/dec_f16.h"
#include "common/codec/dec_generic.h"
#include "common/codec/dec_kivi.h"
#include "common/codec/dec_paper.h"
#include "common/codec/format.h"

namespace sparkv {
namespace {

// The default first.
std::vector<const BlockDecoder*> AllDecoders() {
  return {GenericDecoder(), F16Decoder(), PaperDecoder(), CachegenDecoder(), KiviDecoder()};
}

std::string Supported() {
  return absl::StrJoin(AllDecoders(), ", ", [](std::string* out, const BlockDecoder* d) {
    absl::StrAppend(out, std::string(d->info().name), " (id ", d->info().id, " version ",
                    d->info().version, ")");
  });
}

}  // namespace

absl::Status BlockShape::Validate() const {
  const auto check = [](uint32_t value, uint32_t limit, std::string_view what) {
    if (value >= 1 && value <= limit) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("block shape: ", std::string(what), " is ", value, "; allowed 1..", limit));
  };
  RETURN_IF_ERROR(check(kv_heads, kMaxKvHeads, "kv_heads"));
  RETURN_IF_ERROR(check(tokens, kMaxColumnTokens, "tokens"));
  RETURN_IF_ERROR(check(head_dim, kMaxHeadDim, "head_dim"));
  if (elements() > kMaxBlockElements) {
    return absl::InvalidArgumentError(absl::StrCat("block shape: kv_heads x tokens x head_dim is ",
                                                   elements(), "; at most ", kMaxBlockElements));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> CodecInfo::PlanesForLevel(int level) const {
  if (level == 0) level = default_level;
  for (const CodecLevel& l : levels) {
    if (l.level == level) return l.planes;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "codec ", std::string(name), " has no level ", level,
      "; levels: ", absl::StrJoin(levels, ", ", [](std::string* out, const CodecLevel& l) {
        absl::StrAppend(out, l.level);
      })));
}

Digest CodecDigest(const CodecInfo& info, const Digest* profile) {
  Sha256 sha;
  sha.Field("sparkv.codec", uint64_t{1})
      .Field("name", info.name)
      .Field("id", uint64_t{info.id})
      .Field("version", uint64_t{info.version})
      .Field("planes", static_cast<uint64_t>(info.planes));
  for (const CodecLevel& l : info.levels) {
    sha.Field("level", static_cast<uint64_t>(l.level))
        .Field("level planes", static_cast<uint64_t>(l.planes));
  }
  if (info.needs_profile && profile != nullptr) {
    sha.Field("profile", AsStringView(*profile));
  }
  return sha.Finish();
}

absl::StatusOr<const BlockDecoder*> FindDecoder(std::string_view name) {
  for (const BlockDecoder* d : AllDecoders()) {
    if (d->info().name == name) return d;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("codec \"", std::string(name), "\" is not supported; supported: ", Supported()));
}

absl::StatusOr<const BlockDecoder*> FindDecoder(uint32_t id, uint32_t version) {
  for (const BlockDecoder* d : AllDecoders()) {
    if (d->info().id == id && d->info().version == version) return d;
  }
  return absl::FailedPreconditionError(absl::StrCat("codec id ", id, " version ", version,
                                                    " is not supported; supported: ", Supported()));
}

std::vector<std::string> CodecNames() {
  std::vector<std::string> names;
  for (const BlockDecoder* d : AllDecoders()) names.emplace_back(d->info().name);
  return names;
}

}  // namespace sparkv
