// Codecs turn one block (a column of up to 1024 tokens x one layer, all KV heads, K and V) into
// planes and back. A level is a prefix of planes, never a second copy. FORMAT.md defines the bytes;
// enc_codec.h has the other direction, format.h the file that holds the planes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/sha256.h"

namespace sparkv {

// Side of the arrays that a block consists of: K and V are each [kv_heads][tokens][head_dim] f16
// bits.
struct BlockShape {
  uint32_t kv_heads = 0;
  uint32_t tokens = 0;
  uint32_t head_dim = 0;

  // Elements of K (or of V). At most 2^30 for a valid shape.
  uint64_t elements() const { return uint64_t{kv_heads} * tokens * head_dim; }
  // InvalidArgument unless 1 <= kv_heads <= kMaxKvHeads, 1 <= tokens <= kMaxColumnTokens,
  // 1 <= head_dim <= kMaxHeadDim and elements() <= kMaxBlockElements.
  absl::Status Validate() const;
  bool operator==(const BlockShape&) const = default;
};

// Where a block lies in its model.
struct BlockPlace {
  uint32_t layer = 0;
  uint32_t layers = 1;
};

struct CodecLevel {
  int level = 0;   // the number that people use: nominal bits per value
  int planes = 0;  // how many planes, from the first, it takes
};

struct CodecInfo {
  std::string_view name;
  uint32_t id = 0;       // never reused
  uint32_t version = 0;  // of the plane bytes
  int planes = 0;
  std::vector<CodecLevel> levels;  // ascending in level and in planes
  int default_level = 0;
  bool lossless = false;              // the highest level restores every bit
  bool needs_profile = false;         // see profile.h
  bool computes_first_layer = false;  // layer 0 is never sent: it is made from the token ids

  // Planes of `level`; 0 asks for the default level. InvalidArgument lists the levels there are.
  absl::StatusOr<int> PlanesForLevel(int level) const;
};

// Identity of what the codec makes: name, id, version, planes, levels, and the digest of the
// profile where it needs one. Part of a context's id.
Digest CodecDigest(const CodecInfo& info, const Digest* profile = nullptr);

// Stateless and thread-safe: one instance serves all threads.
class BlockDecoder {
 public:
  virtual ~BlockDecoder() = default;
  virtual const CodecInfo& info() const = 0;
  // Decodes the planes of one level into k and v, shape.elements() each, layout
  // [kv_heads][tokens][head_dim], f16 bits; they must not overlap each other or the planes.
  // Any bytes are safe: DataLoss when they are not what an encoder writes for this shape, and then
  // the content of k and v is undefined. InvalidArgument for a bad shape or a number of planes that
  // is no level. Extra memory: at most 4 * shape.elements() bytes + 1.1 MiB
  // + 26 bytes for each K channel and V row + 3 KiB for each KV head.
  virtual absl::Status DecodeBlock(const BlockShape& shape,
                                   std::span<const std::span<const uint8_t>> planes, uint16_t* k,
                                   uint16_t* v) const = 0;
};

// Decoders live for ever. FailedPrecondition lists the supported names (or id/version pairs).
absl::StatusOr<const BlockDecoder*> FindDecoder(std::string_view name);
absl::StatusOr<const BlockDecoder*> FindDecoder(uint32_t id, uint32_t version);

// Names of all codecs, the default first.
std::vector<std::string> CodecNames();
inline constexpr std::string_view kDefaultCodec = "generic";

}  // namespace sparkv
