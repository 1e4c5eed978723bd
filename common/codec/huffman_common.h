// What the Huffman coder and decoder must agree on; FORMAT.md section 3.1.
#pragma once

#include <cstdint>

namespace sparkv {

inline constexpr int kMaxHuffmanBits = 6;     // of a symbol
inline constexpr int kMaxHuffmanLength = 12;  // bits of a code: one look-up decodes any
inline constexpr uint32_t kHuffmanKraftSum = 1u << kMaxHuffmanLength;

enum class HuffmanMode : uint8_t { kConstant = 1, kCodes = 2 };

// The codes for the lengths of `n` symbols (0: does not occur), each with its first bit lowest, as
// the bit string takes it. The lengths make a complete code (checked by the caller).
inline void CanonicalCodes(const uint8_t* lengths, uint32_t n, uint16_t* codes) {
  uint32_t code = 0;
  for (int length = 1; length <= kMaxHuffmanLength; ++length, code <<= 1) {
    for (uint32_t s = 0; s < n; ++s) {
      if (lengths[s] != length) continue;
      uint32_t reversed = 0;
      for (int b = 0; b < length; ++b) reversed |= ((code >> b) & 1) << (length - 1 - b);
      codes[s] = static_cast<uint16_t>(reversed);
      ++code;
    }
  }
}

}  // namespace sparkv
