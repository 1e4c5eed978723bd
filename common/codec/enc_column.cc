#include "common/codec/enc_column.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/crc32c.h"

namespace sparkv {

absl::StatusOr<ColumnWriter> ColumnWriter::Create(const KvGeometry& geometry, uint32_t tokens,
                                                  const CodecInfo& codec,
                                                  const Digest& model_fingerprint,
                                                  const Digest& column_key, const Digest* profile) {
  RETURN_IF_ERROR(geometry.Validate());
  if (geometry.dtype != KvDtype::kF16) {
    return absl::InvalidArgumentError("column: elements must be f16");
  }
  ColumnWriter writer;
  ColumnHeader& h = writer.header_;
  h.geometry = geometry;
  h.tokens = tokens;
  RETURN_IF_ERROR(h.shape().Validate());
  if (codec.planes < 1 || codec.planes > static_cast<int>(kMaxPlanes) || codec.version > 0xFFFF) {
    return absl::InvalidArgumentError(absl::StrCat("column: codec ", std::string(codec.name),
                                                   " has ", codec.planes, " planes; allowed 1..",
                                                   kMaxPlanes));
  }
  h.codec_id = codec.id;
  h.codec_version = codec.version;
  h.planes = static_cast<uint32_t>(codec.planes);
  h.codec_digest = CodecDigest(codec, profile);
  h.model_fingerprint = model_fingerprint;
  h.column_key = column_key;
  return writer;
}

absl::Status ColumnWriter::AppendLayer(std::span<const std::string> planes,
                                       std::span<const uint16_t> active_blocks) {
  if (next_layer_ >= header_.geometry.layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("column: more than ", header_.geometry.layers, " layers"));
  }
  if (planes.size() != header_.planes) {
    return absl::InvalidArgumentError(
        absl::StrCat("column: ", planes.size(), " planes; the codec has ", header_.planes));
  }
  if (!active_blocks.empty() && active_blocks.size() != header_.geometry.kv_heads) {
    return absl::InvalidArgumentError(absl::StrCat("column: active blocks of ",
                                                   active_blocks.size(), " heads; the model has ",
                                                   header_.geometry.kv_heads));
  }
  for (const std::string& plane : planes) {
    if (plane.empty() || plane.size() > kMaxItemBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("column: a plane of ", plane.size(), " bytes; allowed 1..", kMaxItemBytes));
    }
  }
  for (const std::string& plane : planes) {
    header_.items.push_back({static_cast<uint32_t>(plane.size()), Crc32c(AsBytes(plane))});
    payload_ += plane;
  }
  for (uint32_t h = 0; h < header_.geometry.kv_heads; ++h) {
    header_.active_blocks.push_back(active_blocks.empty() ? 0 : active_blocks[h]);
  }
  ++next_layer_;
  return absl::OkStatus();
}

absl::StatusOr<std::string> ColumnWriter::Finish() {
  const ColumnHeader& h = header_;
  if (next_layer_ != h.geometry.layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("column: ", next_layer_, " layers of ", h.geometry.layers, " appended"));
  }
  const uint64_t header_bytes =
      kColumnPreludeBytes + 8 * h.items.size() + 2 * h.active_blocks.size() + 4;
  ByteWriter out;
  out.WriteBytes(std::string_view(kColumnMagic, sizeof(kColumnMagic)));
  out.Write<uint16_t>(kColumnFormatVersion);
  out.Write<uint16_t>(h.needs_streamed_base ? kColumnNeedsStreamedBase : 0);
  out.Write<uint32_t>(static_cast<uint32_t>(header_bytes));
  out.Write<uint32_t>(h.codec_id);
  out.Write<uint16_t>(static_cast<uint16_t>(h.codec_version));
  out.Write<uint8_t>(static_cast<uint8_t>(h.planes));
  out.Write<uint8_t>(static_cast<uint8_t>(h.geometry.dtype));
  out.Write<uint32_t>(h.geometry.layers);
  out.Write<uint32_t>(h.geometry.kv_heads);
  out.Write<uint32_t>(h.geometry.head_dim);
  out.Write<uint32_t>(h.tokens);
  out.WriteBytes(h.codec_digest);
  out.WriteBytes(h.model_fingerprint);
  out.WriteBytes(h.column_key);
  out.Write<uint64_t>(header_bytes + payload_.size());
  for (const ItemInfo& item : h.items) {
    out.Write<uint32_t>(item.bytes);
    out.Write<uint32_t>(item.crc32c);
  }
  for (uint16_t blocks : h.active_blocks) out.Write<uint16_t>(blocks);
  out.Write<uint32_t>(Crc32c(AsBytes(out.str())));
  std::string blob = out.Take();
  blob += payload_;
  payload_.clear();
  return blob;
}

}  // namespace sparkv
