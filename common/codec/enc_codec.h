// The encoding half of codec.h; the server and tests link it, the edge does not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/codec/codec.h"

namespace sparkv {

// One block as prefill left it; k and v: shape.elements() f16 bits each, [kv_heads][tokens][head_dim].
struct BlockInput {
  BlockShape shape;
  BlockPlace place;
  const uint16_t* k = nullptr;
  const uint16_t* v = nullptr;
  // The same tokens' K and V one layer below; null in layer 0. Only codecs that predict look at them.
  const uint16_t* below_k = nullptr;
  const uint16_t* below_v = nullptr;
};

// Thread-safe. The same block gives the same bytes on any thread.
class BlockEncoder {
 public:
  virtual ~BlockEncoder() = default;
  virtual const CodecInfo& info() const = 0;
  // Returns info().planes planes, none empty, each at most kMaxItemBytes. InvalidArgument for a bad
  // shape or, in a lossy codec, for a value that is not finite (the message names K or V, head, token
  // and channel).
  virtual absl::StatusOr<std::vector<std::string>> EncodeBlock(const BlockInput& in) const = 0;
};

// Encoders live for ever. FailedPrecondition lists the supported names. Every codec that can be
// found here has a decoder.
absl::StatusOr<const BlockEncoder*> FindEncoder(std::string_view name);

}  // namespace sparkv
