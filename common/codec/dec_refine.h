// Refinement blocks, FORMAT.md section 3.1: known codes are split further.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "common/base/bytes.h"

namespace sparkv {

// Reads one refinement block: codes[i] = ways * codes[i] + symbol for all n codes. The caller has
// bounded n, 1..kMaxBlockElements, and every code so that ways * code + ways - 1 fits a byte.
// DataLoss, with codes undefined, names `what`. Extra memory: n + 1 KiB and what DecodeSymbols
// takes.
absl::Status DecodeRefinement(ByteReader& reader, size_t n, int ways, std::string_view what,
                              uint8_t* codes);

}  // namespace sparkv
