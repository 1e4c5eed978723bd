// Any block: the lossless codec restores it; the lossy one refuses what is not finite, else its own
// decoder takes what it writes, and encoding twice gives the same bytes. Input: heads - 1 and 3
// times the layer (of 3), tokens - 1, head_dim - 1, then f16 bits, repeated to fill K and V.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "common/base/bytes.h"
#include "common/codec/enc_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sparkv;
  if (size < 5) return 0;
  const BlockShape shape{data[0] % 3u + 1, data[1] % 100u + 1, data[2] % 40u + 1};
  const size_t n = shape.elements();
  std::vector<uint16_t> values(2 * n);
  const size_t have = (size - 3) / 2;
  bool finite = true;
  for (size_t i = 0; i < values.size(); ++i) {
    std::memcpy(&values[i], data + 3 + 2 * (i % have), 2);
    finite = finite && (values[i] & 0x7C00) != 0x7C00;
  }
  const BlockInput input{.shape = shape,
                         .place = {.layer = data[0] / 3u % 3u, .layers = 3},
                         .k = values.data(),
                         .v = values.data() + n};
  for (const std::string& name : CodecNames()) {
    const BlockEncoder* encoder = *FindEncoder(name);
    const BlockDecoder* decoder = *FindDecoder(name);
    const auto planes = encoder->EncodeBlock(input);
    if (planes.ok() != (finite || encoder->info().lossless)) std::abort();
    if (!planes.ok()) continue;
    if (*encoder->EncodeBlock(input) != *planes) std::abort();
    std::vector<std::span<const uint8_t>> views;
    for (const std::string& plane : *planes) views.push_back(AsBytes(plane));
    std::vector<uint16_t> back(2 * n);
    for (const CodecLevel& level : encoder->info().levels) {
      if (!decoder
               ->DecodeBlock(shape, std::span(views).first(level.planes), back.data(),
                             back.data() + n)
               .ok()) {
        std::abort();
      }
      for (const uint16_t bits : back) {
        if (finite && (bits & 0x7C00) == 0x7C00) std::abort();
      }
    }
    if (encoder->info().lossless && back != values) std::abort();
  }
  return 0;
}
