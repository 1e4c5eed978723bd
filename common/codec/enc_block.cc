#include "common/codec/enc_block.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/half.h"

namespace sparkv {

absl::Status CheckFinite(std::string_view codec, const BlockShape& shape, const uint16_t* k,
                         const uint16_t* v) {
  for (const uint16_t* side : {k, v}) {
    for (uint64_t i = 0; i < shape.elements(); ++i) {
      if ((side[i] & 0x7C00) != 0x7C00) continue;
      const uint64_t row = i / shape.head_dim;
      return absl::InvalidArgumentError(absl::StrCat(
          "codec ", std::string(codec), ": ", side == k ? "K" : "V", " is not finite at head ",
          row / shape.tokens, ", token ", row % shape.tokens, ", channel ", i % shape.head_dim,
          " (f16 bits 0x", absl::Hex(side[i], absl::kZeroPad4),
          "); only finite values can be quantized"));
    }
  }
  return absl::OkStatus();
}

void WritePlaneTag(const CodecInfo& info, int plane, ByteWriter& out) {
  out.Write<uint8_t>(static_cast<uint8_t>(info.id));
  out.Write<uint8_t>(static_cast<uint8_t>(plane));
}

uint16_t HalfCeil(float x) {
  uint16_t half = kernels::FloatToHalf(x);
  if (kernels::HalfToFloat(half) < x) ++half;
  return half;
}

}  // namespace sparkv
