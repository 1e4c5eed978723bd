// The column blob: one file per (context prefix, column), see FORMAT.md. Layer-major, planes of a
// layer in order, no gaps: any item and any run of layers is one contiguous read. Decoder side; the
// writer is enc_column.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/sha256.h"
#include "common/codec/codec.h"
#include "common/kv/geometry.h"
#include "common/kv/manifest.h"

namespace sparkv {

inline constexpr char kColumnMagic[8] = {'S', 'P', 'K', 'V', 'C', 'O', 'L', '\x1a'};
inline constexpr uint16_t kColumnFormatVersion = 1;
inline constexpr uint16_t kColumnNeedsStreamedBase = 1;  // of the flags
inline constexpr uint32_t kMaxColumnTokens = kColumnTokens;
inline constexpr uint32_t kMaxPlanes = 16;
inline constexpr uint32_t kMaxItemBytes = 1u << 28;      // 256 MiB
inline constexpr uint64_t kMaxBlockElements = 1u << 26;  // K (or V) values of a block
inline constexpr uint64_t kColumnPreludeBytes = 144;     // enough to know the header's size
inline constexpr uint64_t kMaxColumnHeaderBytes = 4u << 20;

struct ByteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct ColumnHeader {
  KvGeometry geometry;  // dtype is f16 in version 1
  uint32_t tokens = 0;
  uint32_t codec_id = 0;
  uint32_t codec_version = 0;
  uint32_t planes = 0;
  Digest codec_digest{};
  Digest model_fingerprint{};
  Digest column_key{};
  uint64_t header_bytes = 0;
  uint64_t file_bytes = 0;
  std::vector<ItemInfo> items;          // [layers][planes]
  std::vector<uint64_t> offsets;        // [layers][planes], from the start of the blob
  std::vector<uint16_t> active_blocks;  // [layers][kv_heads]; 0: not measured
  // What is predicted holds from the streamed blocks below only: no block is finished on a computed
  // one above layer 0.
  bool needs_streamed_base = false;

  BlockShape shape() const { return {geometry.kv_heads, tokens, geometry.head_dim}; }
  const ItemInfo& item(uint32_t layer, uint32_t plane) const {
    return items[size_t{layer} * planes + plane];
  }
  // REQUIRES layer < geometry.layers, plane < planes.
  ByteRange ItemRange(uint32_t layer, uint32_t plane) const;
  // All planes of layers [begin, end). REQUIRES begin < end <= geometry.layers.
  ByteRange LayersRange(uint32_t begin, uint32_t end) const;
  // DataLoss naming layer and plane unless `bytes` has the item's length and CRC. InvalidArgument
  // for a layer or plane that the column does not have.
  absl::Status VerifyItem(uint32_t layer, uint32_t plane, std::span<const uint8_t> bytes) const;
  // FailedPrecondition unless the column was made for this model and codec; DataLoss for another
  // key.
  absl::Status CheckIdentity(const Digest& model, const Digest& codec, const Digest& key) const;
};

// Bytes of the whole header, from at least the first kColumnPreludeBytes of a blob. DataLoss for
// what is no column or breaks a limit (then nothing was allocated), FailedPrecondition for another
// version.
absl::StatusOr<uint64_t> ColumnHeaderBytes(std::span<const uint8_t> first_bytes);

// Parses the header from a prefix of a blob (or all of it). Errors as above; DataLoss "needs N
// bytes, got M" when the prefix is shorter than the header. The payload is not looked at.
absl::StatusOr<ColumnHeader> ParseColumnHeader(std::span<const uint8_t> first_bytes);

// Header and every item's CRC of a whole blob, nothing missing and nothing behind it.
absl::Status VerifyColumn(std::span<const uint8_t> blob);

}  // namespace sparkv
