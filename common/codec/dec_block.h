// What the decoders of all codecs do alike before they look at a plane's content.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/base/bytes.h"
#include "common/codec/codec.h"

namespace sparkv {

// InvalidArgument unless the shape is valid and `planes` is the number of planes of a level.
absl::Status CheckDecodeCall(const CodecInfo& info, const BlockShape& shape, size_t planes);

// Reads and checks the two bytes that every plane begins with. DataLoss for another codec or plane.
absl::Status ReadPlaneTag(ByteReader& reader, const CodecInfo& info, int plane);

// DataLoss when bytes are left.
absl::Status CheckPlaneEnd(const ByteReader& reader, const CodecInfo& info, int plane);

}  // namespace sparkv
