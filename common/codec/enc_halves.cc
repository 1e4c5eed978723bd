#include "common/codec/enc_halves.h"

#include <vector>

#include "common/codec/enc_symbols.h"

namespace sparkv {

void EncodeHalves(uint32_t runs, uint32_t length, const uint16_t* halves, ByteWriter& out) {
  std::vector<uint8_t> bytes(size_t{2} * runs * length);
  for (uint32_t r = 0; r < runs; ++r) {
    const uint16_t* in = halves + size_t{r} * length;
    uint8_t* low = bytes.data() + size_t{2} * r * length;
    for (uint32_t i = 0; i < length; ++i) {
      low[i] = static_cast<uint8_t>(in[i]);
      low[length + i] = static_cast<uint8_t>(in[i] >> 8);
    }
  }
  EncodeSymbols(2 * runs, length, 8, bytes.data(), out);
}

}  // namespace sparkv
