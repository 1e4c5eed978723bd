// Writes runs of f16, FORMAT.md section 3.1.
#pragma once

#include <cstdint>

#include "common/base/bytes.h"

namespace sparkv {

// Appends halves: [runs][length] f16 bits.
void EncodeHalves(uint32_t runs, uint32_t length, const uint16_t* halves, ByteWriter& out);

}  // namespace sparkv
