// The encoding half of codec.h; the server and tests link it, the edge does not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/codec/codec.h"

namespace sparkv {

// Stateless and thread-safe. The same block gives the same bytes on any machine and thread.
class BlockEncoder {
 public:
  virtual ~BlockEncoder() = default;
  virtual const CodecInfo& info() const = 0;
  // k, v: shape.elements() f16 bits each, [kv_heads][tokens][head_dim]. Returns info().planes
  // planes, none empty, each at most kMaxItemBytes. InvalidArgument for a bad shape or, in a lossy
  // codec, for a value that is not finite (the message names K or V, head, token and channel).
  virtual absl::StatusOr<std::vector<std::string>> EncodeBlock(const BlockShape& shape,
                                                               const uint16_t* k,
                                                               const uint16_t* v) const = 0;
};

// Encoders live for ever. FailedPrecondition lists the supported names. Every codec that can be
// found here has a decoder.
absl::StatusOr<const BlockEncoder*> FindEncoder(std::string_view name);

}  // namespace sparkv
