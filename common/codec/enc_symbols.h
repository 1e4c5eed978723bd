// Writes symbol blocks, FORMAT.md section 3.
#pragma once

#include <cstdint>

#include "common/base/bytes.h"

namespace sparkv {

// Appends one symbol block of runs * length symbols (uint8_t[runs][length], each below 2^bits,
// bits 1..8), in the mode that is smallest; raw also when rANS would save less than 1/32, since raw
// decodes faster.
void EncodeSymbols(uint32_t runs, uint32_t length, int bits, const uint8_t* symbols,
                   ByteWriter& out);

}  // namespace sparkv
