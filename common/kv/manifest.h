// What an edge must know about a stored context before it plans a load.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/sha256.h"
#include "common/kv/geometry.h"

namespace sparkv {

// One item (t, l, plane): what is sent, cancelled and checksummed.
struct ItemInfo {
  uint32_t bytes = 0;
  uint32_t crc32c = 0;
};

struct ManifestColumn {
  Digest key{};
  uint32_t tokens = 0;
  std::vector<ItemInfo> items;  // [layers][planes]
  std::vector<uint32_t>
      active_blocks;  // [layers][kv_heads] attention blocks at 98 % mass; empty: not measured
};

struct Manifest {
  Digest context_id{};
  Digest model_fingerprint{};
  Digest codec_digest{};
  std::string codec;                     // name, see common/codec/codec.h
  std::optional<Digest> profile_digest;  // of the codec's profile; none: it needs none
  KvGeometry geometry;
  uint32_t planes = 0;
  std::vector<int32_t> tokens;
  // Some column's predictions hold from streamed blocks only: its layers above layer 0 are all
  // streamed or all computed.
  bool needs_streamed_base = false;
  std::vector<ManifestColumn> columns;

  const ItemInfo& item(uint32_t t, uint32_t layer, uint32_t plane) const {
    return columns[t].items[size_t{layer} * planes + plane];
  }
  // Bytes of the first `n` planes of block (t, l).
  uint64_t BlockBytes(uint32_t t, uint32_t layer, uint32_t n) const {
    uint64_t sum = 0;
    for (uint32_t p = 0; p < n; ++p) sum += item(t, layer, p).bytes;
    return sum;
  }
};

}  // namespace sparkv
