#include "common/rpc/wire.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/base/utf8.h"

namespace sparkv {
namespace {

absl::Status Range(const std::string& field, uint64_t got, uint64_t least, uint64_t most) {
  if (got >= least && got <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": got ", got, ", allowed: ", least, "..", most));
}

absl::Status Count(const std::string& field, uint64_t got, uint64_t want) {
  if (got == want) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": got ", got, " entries, needs ", want));
}

void SetDigest(const Digest& digest, std::string* field) {
  field->assign(reinterpret_cast<const char*>(digest.data()), digest.size());
}

}  // namespace

absl::StatusOr<Digest> DigestField(std::string_view bytes, std::string_view field) {
  Digest digest;
  if (bytes.size() != digest.size()) {
    return absl::InvalidArgumentError(absl::StrCat(absl::string_view(field.data(), field.size()),
                                                   ": needs 32 bytes, got ", bytes.size()));
  }
  std::memcpy(digest.data(), bytes.data(), digest.size());
  return digest;
}

v1::KvGeometry ToProto(const KvGeometry& geometry) {
  v1::KvGeometry out;
  out.set_layers(geometry.layers);
  out.set_kv_heads(geometry.kv_heads);
  out.set_head_dim(geometry.head_dim);
  out.set_dtype(static_cast<uint32_t>(geometry.dtype));
  return out;
}

absl::StatusOr<KvGeometry> FromProto(const v1::KvGeometry& geometry) {
  RETURN_IF_ERROR(Range("geometry.layers", geometry.layers(), 1, kMaxLayers));
  RETURN_IF_ERROR(Range("geometry.kv_heads", geometry.kv_heads(), 1, kMaxKvHeads));
  RETURN_IF_ERROR(Range("geometry.head_dim", geometry.head_dim(), 1, kMaxHeadDim));
  RETURN_IF_ERROR(Range("geometry.dtype", geometry.dtype(), 1, 2));
  return KvGeometry{geometry.layers(), geometry.kv_heads(), geometry.head_dim(),
                    static_cast<KvDtype>(geometry.dtype())};
}

v1::Manifest ToProto(const Manifest& manifest, std::string_view name) {
  v1::Manifest out;
  SetDigest(manifest.context_id, out.mutable_context_id());
  SetDigest(manifest.model_fingerprint, out.mutable_model_fingerprint());
  SetDigest(manifest.codec_digest, out.mutable_codec_digest());
  out.set_codec(manifest.codec);
  if (manifest.profile_digest) SetDigest(*manifest.profile_digest, out.mutable_profile_digest());
  out.set_needs_streamed_base(manifest.needs_streamed_base);
  *out.mutable_geometry() = ToProto(manifest.geometry);
  out.set_planes(manifest.planes);
  out.mutable_tokens()->Add(manifest.tokens.begin(), manifest.tokens.end());
  for (const ManifestColumn& column : manifest.columns) {
    v1::Column* c = out.add_columns();
    SetDigest(column.key, c->mutable_key());
    c->set_tokens(column.tokens);
    for (const ItemInfo& item : column.items) {
      v1::Item* i = c->add_items();
      i->set_bytes(item.bytes);
      i->set_crc32c(item.crc32c);
    }
    c->mutable_active_blocks()->Add(column.active_blocks.begin(), column.active_blocks.end());
  }
  out.set_name(std::string(name));
  return out;
}

absl::StatusOr<Manifest> FromProto(const v1::Manifest& manifest) {
  Manifest out;
  ASSIGN_OR_RETURN(out.context_id, DigestField(manifest.context_id(), "context_id"));
  ASSIGN_OR_RETURN(out.model_fingerprint,
                   DigestField(manifest.model_fingerprint(), "model_fingerprint"));
  ASSIGN_OR_RETURN(out.codec_digest, DigestField(manifest.codec_digest(), "codec_digest"));
  RETURN_IF_ERROR(Range("codec: length", manifest.codec().size(), 1, 64));
  out.codec = manifest.codec();
  if (!manifest.profile_digest().empty()) {
    ASSIGN_OR_RETURN(out.profile_digest, DigestField(manifest.profile_digest(), "profile_digest"));
  }
  out.needs_streamed_base = manifest.needs_streamed_base();
  ASSIGN_OR_RETURN(out.geometry, FromProto(manifest.geometry()));
  RETURN_IF_ERROR(Range("planes", manifest.planes(), 1, kMaxWirePlanes));
  out.planes = manifest.planes();
  RETURN_IF_ERROR(
      Range("tokens: length", static_cast<uint64_t>(manifest.tokens_size()), 1, kMaxContextTokens));
  for (int i = 0; i < manifest.tokens_size(); ++i) {
    if (manifest.tokens(i) < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokens[", i, "]: got ", manifest.tokens(i), ", allowed: 0 or more"));
    }
  }
  out.tokens.assign(manifest.tokens().begin(), manifest.tokens().end());
  const uint32_t tokens = static_cast<uint32_t>(out.tokens.size());
  RETURN_IF_ERROR(
      Count("columns", static_cast<uint64_t>(manifest.columns_size()), ColumnCount(tokens)));
  const uint64_t items = uint64_t{out.geometry.layers} * out.planes;
  out.columns.reserve(static_cast<size_t>(manifest.columns_size()));
  for (int t = 0; t < manifest.columns_size(); ++t) {
    const v1::Column& column = manifest.columns(t);
    const std::string where = absl::StrCat("columns[", t, "].");
    ManifestColumn c;
    ASSIGN_OR_RETURN(c.key, DigestField(column.key(), where + "key"));
    const uint32_t want = ColumnTokens(tokens, static_cast<uint32_t>(t));
    if (column.tokens() != want) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "tokens: got ", column.tokens(), ", needs ", want));
    }
    c.tokens = want;
    RETURN_IF_ERROR(Count(where + "items", static_cast<uint64_t>(column.items_size()), items));
    c.items.reserve(items);
    for (const v1::Item& item : column.items()) {
      if (item.bytes() == 0 || item.bytes() > kMaxWireItemBytes) {
        return Range(absl::StrCat(where, "items[", c.items.size(), "].bytes"), item.bytes(), 1,
                     kMaxWireItemBytes);
      }
      c.items.push_back({item.bytes(), item.crc32c()});
    }
    if (column.active_blocks_size() != 0) {
      RETURN_IF_ERROR(Count(where + "active_blocks",
                            static_cast<uint64_t>(column.active_blocks_size()),
                            uint64_t{out.geometry.layers} * out.geometry.kv_heads));
      for (const uint32_t blocks : column.active_blocks()) {
        RETURN_IF_ERROR(Range(where + "active_blocks", blocks, 0, kMaxActiveBlocks));
      }
      c.active_blocks.assign(column.active_blocks().begin(), column.active_blocks().end());
    }
    out.columns.push_back(std::move(c));
  }
  if (out.columns.back().key != out.context_id) {
    return absl::InvalidArgumentError("context_id: is not the last column's key");
  }
  return out;
}

absl::Status CheckPrintable(std::string_view name) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(name.data());
  for (size_t i = 0; i < name.size();) {
    const Utf8Unit unit = NextUtf8Unit(bytes + i, name.size() - i);
    const uint32_t c = unit.code;
    if (!unit.valid)
      return absl::InvalidArgumentError(absl::StrCat("name: is not UTF-8 at byte ", i));
    if (c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029 ||
        (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("name: control characters are not allowed, got U+%04X at byte %d", c, i));
    }
    i += unit.length;
  }
  return absl::OkStatus();
}

}  // namespace sparkv
