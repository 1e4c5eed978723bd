// proto <-> kv types. What comes from the wire is checked against every range of kv_cache.proto
// before use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/kv/geometry.h"
#include "common/kv/manifest.h"
#include "sparkv/v1/kv_cache.pb.h"

namespace sparkv {

inline constexpr uint32_t kMaxFrameBytes = 256u << 10;   // FetchResponse.Frame.data
inline constexpr uint32_t kMaxWireItemBytes = 1u << 28;  // Item.bytes; common/codec's kMaxItemBytes
inline constexpr uint32_t kMaxWirePlanes = 16;
inline constexpr uint32_t kMaxOrderItems = 65536;  // items of one Order or Cancel
inline constexpr uint64_t kDefaultWindowBytes = 4u << 20;
inline constexpr uint64_t kMaxWindowBytes = 64u << 20;
inline constexpr size_t kMaxRequestTextBytes = 16u
                                               << 20;  // a document: common/llm's kMaxEncodeBytes
inline constexpr size_t kMaxNameBytes = 256;
inline constexpr size_t kMaxSystemBytes = 1u << 20;
inline constexpr uint32_t kMaxListLimit = 1000;
inline constexpr uint32_t kMaxActiveBlocks = 1u << 16;
inline constexpr uint32_t kMaxProfileChunkBytes = 256u << 10;  // ProfileChunk.data

v1::KvGeometry ToProto(const KvGeometry& geometry);
// InvalidArgument naming the field.
absl::StatusOr<KvGeometry> FromProto(const v1::KvGeometry& geometry);

v1::Manifest ToProto(const Manifest& manifest, std::string_view name = "");
// InvalidArgument naming the field, what was got and what is allowed. After Ok: digests are 32
// bytes, the geometry is valid, planes 1..16, the columns' tokens are exactly those of a context of
// tokens.size() tokens, each column has layers x planes items of 1..kMaxWireItemBytes bytes and
// none or layers x kv_heads active blocks, and the context id is the last column's key. Token ids
// are >= 0; the vocabulary is the caller's to check, and so are codec and profile.
absl::StatusOr<Manifest> FromProto(const v1::Manifest& manifest);

// InvalidArgument for a name of a context that is not UTF-8 or has characters that a terminal obeys
// or that rearrange the line it stands in: controls (C0, DEL, C1), line and paragraph separators,
// bidirectional overrides and isolates.
absl::Status CheckPrintable(std::string_view name);

// A digest field of a request: InvalidArgument "context_id: needs 32 bytes, got 5".
absl::StatusOr<Digest> DigestField(std::string_view bytes, std::string_view field);

}  // namespace sparkv
