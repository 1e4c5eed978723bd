// Writes the column blob of format.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/codec/format.h"

namespace sparkv {

// Append every layer in order, then Finish. Thread-compatible. Holds the whole blob in memory.
class ColumnWriter {
 public:
  // `profile`: digest of the codec's profile where it needs one. InvalidArgument for a geometry,
  // token count or codec outside the format's limits.
  static absl::StatusOr<ColumnWriter> Create(const KvGeometry& geometry, uint32_t tokens,
                                             const CodecInfo& codec,
                                             const Digest& model_fingerprint,
                                             const Digest& column_key,
                                             const Digest* profile = nullptr);

  // The next layer's planes. active_blocks: [kv_heads] attention blocks at 98 % mass, or empty for
  // not measured. InvalidArgument for a wrong number of planes or heads, an empty or oversized
  // plane, or a layer too many.
  absl::Status AppendLayer(std::span<const std::string> planes,
                           std::span<const uint16_t> active_blocks = {});

  // Says so in the header; see ColumnHeader. Before Finish.
  void NeedsStreamedBase() { header_.needs_streamed_base = true; }

  // The blob. InvalidArgument when layers are missing. Call once.
  absl::StatusOr<std::string> Finish();

 private:
  ColumnWriter() = default;
  ColumnHeader header_;
  uint32_t next_layer_ = 0;
  std::string payload_;
};

}  // namespace sparkv
