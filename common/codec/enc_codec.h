// The encoding half of codec.h; the server and tests link it, the edge does not.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/thread_pool.h"
#include "common/codec/codec.h"

namespace sparkv {

// One block as prefill left it; k and v: shape.elements() f16 bits each,
// [kv_heads][tokens][head_dim].
struct BlockInput {
  BlockShape shape;
  BlockPlace place;
  const uint16_t* k = nullptr;
  const uint16_t* v = nullptr;
};

// Thread-safe. The same block gives the same bytes on any thread.
class BlockEncoder {
 public:
  virtual ~BlockEncoder() = default;
  virtual const CodecInfo& info() const = 0;
  // Returns info().planes planes, none empty, each at most kMaxItemBytes. InvalidArgument for a bad
  // shape or, in a lossy codec, for a value that is not finite (the message names K or V, head,
  // token and channel).
  virtual absl::StatusOr<std::vector<std::string>> EncodeBlock(const BlockInput& in) const = 0;
};

// Encoders live for ever. FailedPrecondition lists the supported names. Every codec that can be
// found here has a decoder.
absl::StatusOr<const BlockEncoder*> FindEncoder(std::string_view name);

// All layers of a column; a pointer for each layer, as in BlockInput.
struct ColumnInput {
  BlockShape shape;
  uint32_t first_token = 0;
  std::span<const int32_t> tokens;  // [shape.tokens]
  std::span<const uint16_t*const> k, v;
};

// Above it a split of a column would cost more than the codec itself does.
inline constexpr double kMaxBaseMismatch = 1.0;

struct EncodedColumn {
  std::vector<std::vector<std::string>> planes;  // [layers][planes]
  // Error that a computed base adds, over the codec's own (mean squares); 0 where nothing is
  // predicted from the block below.
  double base_mismatch = 0;
  // As in ColumnHeader.
  bool needs_streamed_base() const { return base_mismatch > kMaxBaseMismatch; }
};

// Encodes whole columns: the blocks of a codec that predicts depend on those below. Thread-safe.
class ColumnEncoder {
 public:
  virtual ~ColumnEncoder() = default;
  virtual const CodecInfo& info() const = 0;
  // CodecDigest of the codec and its profile.
  virtual Digest digest() const = 0;
  // Works on the pool's threads too (null: on the caller alone). The same bytes with any number of
  // threads. Errors as of BlockEncoder, with the layer named.
  virtual absl::StatusOr<EncodedColumn> EncodeColumn(const ColumnInput& in,
                                                     ThreadPool* pool) const = 0;
};

// The encoder must outlive it.
std::unique_ptr<ColumnEncoder> MakeColumnEncoder(const BlockEncoder* encoder);

}  // namespace sparkv
