#include "common/codec/format.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/crc32c.h"

namespace sparkv {
namespace {

absl::Status CheckLimit(uint64_t value, uint64_t limit, std::string_view what) {
  if (value >= 1 && value <= limit) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("column: ", std::string(what), " is ", value, "; allowed 1..", limit));
}

absl::Status ReadDigest(ByteReader& reader, std::string_view what, Digest* out) {
  ASSIGN_OR_RETURN(const auto bytes, reader.ReadBytes(out->size(), what));
  std::memcpy(out->data(), bytes.data(), out->size());
  return absl::OkStatus();
}

// Everything before the index, limits checked, nothing allocated.
absl::StatusOr<ColumnHeader> ReadPrelude(std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  ColumnHeader h;
  ASSIGN_OR_RETURN(const auto magic, reader.ReadBytes(sizeof(kColumnMagic), "column magic"));
  if (std::memcmp(magic.data(), kColumnMagic, sizeof(kColumnMagic)) != 0) {
    return absl::DataLossError("column: bad magic, this is not a column blob");
  }
  ASSIGN_OR_RETURN(const uint16_t version, reader.Read<uint16_t>("column version"));
  if (version != kColumnFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "column format version ", version, " is not supported; supported: ", kColumnFormatVersion));
  }
  ASSIGN_OR_RETURN(const uint16_t flags, reader.Read<uint16_t>("column flags"));
  if ((flags & ~kColumnNeedsStreamedBase) != 0) {
    return absl::DataLossError(
        absl::StrCat("column: flags are ", flags, "; allowed 0..", kColumnNeedsStreamedBase));
  }
  h.needs_streamed_base = flags == kColumnNeedsStreamedBase;
  ASSIGN_OR_RETURN(const uint32_t header_bytes, reader.Read<uint32_t>("column header bytes"));
  h.header_bytes = header_bytes;
  ASSIGN_OR_RETURN(h.codec_id, reader.Read<uint32_t>("column codec id"));
  ASSIGN_OR_RETURN(h.codec_version, reader.Read<uint16_t>("column codec version"));
  ASSIGN_OR_RETURN(h.planes, reader.Read<uint8_t>("column planes"));
  ASSIGN_OR_RETURN(const uint8_t dtype, reader.Read<uint8_t>("column element type"));
  ASSIGN_OR_RETURN(h.geometry.layers, reader.Read<uint32_t>("column layers"));
  ASSIGN_OR_RETURN(h.geometry.kv_heads, reader.Read<uint32_t>("column kv_heads"));
  ASSIGN_OR_RETURN(h.geometry.head_dim, reader.Read<uint32_t>("column head_dim"));
  ASSIGN_OR_RETURN(h.tokens, reader.Read<uint32_t>("column tokens"));
  RETURN_IF_ERROR(ReadDigest(reader, "column codec digest", &h.codec_digest));
  RETURN_IF_ERROR(ReadDigest(reader, "column model fingerprint", &h.model_fingerprint));
  RETURN_IF_ERROR(ReadDigest(reader, "column key", &h.column_key));
  ASSIGN_OR_RETURN(h.file_bytes, reader.Read<uint64_t>("column file bytes"));

  RETURN_IF_ERROR(CheckLimit(h.planes, kMaxPlanes, "planes"));
  RETURN_IF_ERROR(CheckLimit(h.geometry.layers, kMaxLayers, "layers"));
  RETURN_IF_ERROR(CheckLimit(h.geometry.kv_heads, kMaxKvHeads, "kv_heads"));
  RETURN_IF_ERROR(CheckLimit(h.geometry.head_dim, kMaxHeadDim, "head_dim"));
  RETURN_IF_ERROR(CheckLimit(h.tokens, kMaxColumnTokens, "tokens"));
  RETURN_IF_ERROR(CheckLimit(h.shape().elements(), kMaxBlockElements, "elements of a block"));
  if (dtype != static_cast<uint8_t>(KvDtype::kF16)) {
    return absl::DataLossError(absl::StrCat("column: element type ", dtype, "; allowed 1 (f16)"));
  }
  const uint64_t want = kColumnPreludeBytes + uint64_t{8} * h.geometry.layers * h.planes +
                        uint64_t{2} * h.geometry.layers * h.geometry.kv_heads + 4;
  static_assert(kColumnPreludeBytes + 8 * kMaxLayers * kMaxPlanes + 2 * kMaxLayers * kMaxKvHeads +
                    4 <=
                kMaxColumnHeaderBytes);
  if (header_bytes != want) {
    return absl::DataLossError(
        absl::StrCat("column: header_bytes is ", header_bytes, "; this geometry needs ", want));
  }
  return h;
}

}  // namespace

ByteRange ColumnHeader::ItemRange(uint32_t layer, uint32_t plane) const {
  const size_t i = size_t{layer} * planes + plane;
  return {offsets[i], items[i].bytes};
}

ByteRange ColumnHeader::LayersRange(uint32_t begin, uint32_t end) const {
  const uint64_t first = offsets[size_t{begin} * planes];
  const uint64_t last = end == geometry.layers ? file_bytes : offsets[size_t{end} * planes];
  return {first, last - first};
}

absl::Status ColumnHeader::VerifyItem(uint32_t layer, uint32_t plane,
                                      std::span<const uint8_t> bytes) const {
  if (layer >= geometry.layers || plane >= planes) {
    return absl::InvalidArgumentError(absl::StrCat("item of layer ", layer, " plane ", plane,
                                                   "; the column has ", geometry.layers,
                                                   " layers and ", planes, " planes"));
  }
  const ItemInfo& want = item(layer, plane);
  if (bytes.size() != want.bytes) {
    return absl::DataLossError(absl::StrCat("item of layer ", layer, " plane ", plane, " has ",
                                            bytes.size(), " bytes; the index says ", want.bytes));
  }
  const uint32_t crc = Crc32c(bytes);
  if (crc != want.crc32c) {
    return absl::DataLossError(absl::StrCat(
        "item of layer ", layer, " plane ", plane, ": CRC-32C is ", absl::Hex(crc, absl::kZeroPad8),
        "; the index says ", absl::Hex(want.crc32c, absl::kZeroPad8)));
  }
  return absl::OkStatus();
}

absl::Status ColumnHeader::CheckIdentity(const Digest& model, const Digest& codec,
                                         const Digest& key) const {
  const auto differ = [](std::string_view what, const Digest& got, const Digest& want) {
    return absl::StrCat("column: ", std::string(what), " is ", DigestToHex(got), "; wanted ",
                        DigestToHex(want));
  };
  if (model_fingerprint != model) {
    return absl::FailedPreconditionError(differ("model fingerprint", model_fingerprint, model));
  }
  if (codec_digest != codec) {
    return absl::FailedPreconditionError(differ("codec digest", codec_digest, codec));
  }
  if (column_key != key) return absl::DataLossError(differ("key", column_key, key));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ColumnHeaderBytes(std::span<const uint8_t> first_bytes) {
  ASSIGN_OR_RETURN(const ColumnHeader h, ReadPrelude(first_bytes));
  return h.header_bytes;
}

absl::StatusOr<ColumnHeader> ParseColumnHeader(std::span<const uint8_t> first_bytes) {
  ASSIGN_OR_RETURN(ColumnHeader h, ReadPrelude(first_bytes));
  if (first_bytes.size() < h.header_bytes) {
    return absl::DataLossError(
        absl::StrCat("column header: needs ", h.header_bytes, " bytes, got ", first_bytes.size()));
  }
  const auto header = first_bytes.first(h.header_bytes);
  ByteReader crc_reader(header.last(4));
  ASSIGN_OR_RETURN(const uint32_t want, crc_reader.Read<uint32_t>("column header CRC"));
  const uint32_t crc = Crc32c(header.first(header.size() - 4));
  if (crc != want) {
    return absl::DataLossError(absl::StrCat("column header: CRC-32C is ",
                                            absl::Hex(crc, absl::kZeroPad8), "; it says ",
                                            absl::Hex(want, absl::kZeroPad8)));
  }
  ByteReader reader(header.subspan(kColumnPreludeBytes));
  const size_t items = size_t{h.geometry.layers} * h.planes;
  h.items.reserve(items);
  h.offsets.reserve(items);
  uint64_t offset = h.header_bytes;
  for (size_t i = 0; i < items; ++i) {
    ItemInfo item;
    ASSIGN_OR_RETURN(item.bytes, reader.Read<uint32_t>("column index"));
    ASSIGN_OR_RETURN(item.crc32c, reader.Read<uint32_t>("column index"));
    RETURN_IF_ERROR(CheckLimit(item.bytes, kMaxItemBytes, "bytes of an item"));
    h.items.push_back(item);
    h.offsets.push_back(offset);
    offset += item.bytes;  // at most 2^14 items of 2^28 bytes
  }
  if (offset != h.file_bytes) {
    return absl::DataLossError(
        absl::StrCat("column: file_bytes is ", h.file_bytes, "; header and items have ", offset));
  }
  const size_t heads = size_t{h.geometry.layers} * h.geometry.kv_heads;
  h.active_blocks.reserve(heads);
  for (size_t i = 0; i < heads; ++i) {
    ASSIGN_OR_RETURN(const uint16_t blocks, reader.Read<uint16_t>("column active blocks"));
    h.active_blocks.push_back(blocks);
  }
  return h;
}

absl::Status VerifyColumn(std::span<const uint8_t> blob) {
  ASSIGN_OR_RETURN(const ColumnHeader h, ParseColumnHeader(blob));
  if (blob.size() != h.file_bytes) {
    return absl::DataLossError(
        absl::StrCat("column: has ", blob.size(), " bytes; the header says ", h.file_bytes));
  }
  for (uint32_t l = 0; l < h.geometry.layers; ++l) {
    for (uint32_t p = 0; p < h.planes; ++p) {
      const ByteRange r = h.ItemRange(l, p);
      RETURN_IF_ERROR(h.VerifyItem(l, p, blob.subspan(r.offset, r.bytes)));
    }
  }
  return absl::OkStatus();
}

}  // namespace sparkv
