// What encoders do alike.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "common/base/bytes.h"
#include "common/codec/codec.h"

namespace sparkv {

// InvalidArgument for the first value of k or v (shape.elements() f16 bits each) that is not
// finite; names codec, K or V, head, token and channel.
absl::Status CheckFinite(std::string_view codec, const BlockShape& shape, const uint16_t* k,
                         const uint16_t* v);

// The two bytes that every plane begins with; ReadPlaneTag of dec_block.h reads them.
void WritePlaneTag(const CodecInfo& info, int plane, ByteWriter& out);

// The least f16 at or above x; 0 <= x <= 65504.
uint16_t HalfCeil(float x);

}  // namespace sparkv
