// Blocks of canonical Huffman codes, FORMAT.md section 3.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "common/base/bytes.h"

namespace sparkv {

// Reads n >= 1 symbols of `bits` bits (1..kMaxHuffmanBits) into out. The caller has bounded n.
// DataLoss, with out undefined, names `what`; lengths that make no complete code are refused.
absl::Status DecodeHuffman(ByteReader& reader, size_t n, int bits, std::string_view what,
                           uint8_t* out);

}  // namespace sparkv
