// Writes blocks of canonical Huffman codes, FORMAT.md section 3.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/bytes.h"

namespace sparkv {

// Lengths of an optimal prefix code for the counts (at most 64, at least two not 0), none above
// kMaxHuffmanLength: counts are halved until the longest code fits, which only counts that differ a
// thousandfold need. 0 for a count of 0.
void HuffmanLengths(std::span<const uint64_t> counts, std::span<uint8_t> lengths);

// Appends n >= 1 symbols, each below 2^bits, bits 1..kMaxHuffmanBits.
void EncodeHuffman(size_t n, int bits, const uint8_t* symbols, ByteWriter& out);

}  // namespace sparkv
