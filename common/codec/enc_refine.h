// Writes refinement blocks, FORMAT.md section 3.1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/bytes.h"

namespace sparkv {

// Appends one refinement block and brings the codes up to date: codes[i] becomes finer[i], which is
// ways * codes[i] + a symbol below `ways` (2..8). n >= 1.
void EncodeRefinement(size_t n, int ways, const uint8_t* finer, uint8_t* codes, ByteWriter& out);

}  // namespace sparkv
