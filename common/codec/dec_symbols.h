// Symbol blocks, FORMAT.md section 3: runs of small integers, stored raw, as a constant, or by
// rANS.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "common/base/bytes.h"

namespace sparkv {

enum class Combine {
  kReplace,  // out[i] = symbol
  kAppend,   // out[i] = out[i] << bits | symbol
};

// Reads one symbol block of runs * length symbols into out (uint8_t[runs][length]). The caller has
// bounded runs * length. DataLoss, with out undefined, names `what`. Extra memory: at most 0.4 MiB
// + runs bytes.
absl::Status DecodeSymbols(ByteReader& reader, uint32_t runs, uint32_t length, int bits,
                           Combine combine, std::string_view what, uint8_t* out);

}  // namespace sparkv
