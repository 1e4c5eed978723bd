#include "common/codec/dec_huffman.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/codec/huffman_common.h"

namespace sparkv {
namespace {

absl::Status Bad(std::string_view what, std::string_view why) {
  return absl::DataLossError(absl::StrCat(std::string(what), ": ", std::string(why)));
}

struct Entry {
  uint8_t symbol;
  uint8_t length;
};

absl::Status DecodeCodes(ByteReader& reader, size_t n, uint32_t alphabet, std::string_view what,
                         uint8_t* out) {
  uint8_t lengths[1 << kMaxHuffmanBits];
  ASSIGN_OR_RETURN(const auto packed, reader.ReadBytes(alphabet / 2, what));
  uint32_t kraft_sum = 0;
  for (uint32_t s = 0; s < alphabet; ++s) {
    const int length = (packed[s / 2] >> (s % 2 * 4)) & 15;
    if (length > kMaxHuffmanLength) {
      return Bad(what, absl::StrCat("a code of ", length, " bits; at most ", kMaxHuffmanLength));
    }
    lengths[s] = static_cast<uint8_t>(length);
    if (length > 0) kraft_sum += kHuffmanKraftSum >> length;
  }
  if (kraft_sum != kHuffmanKraftSum) {
    return Bad(what, kraft_sum < kHuffmanKraftSum ? "the Huffman code is incomplete"
                                                  : "the Huffman code is over-subscribed");
  }
  uint16_t codes[1 << kMaxHuffmanBits] = {};
  CanonicalCodes(lengths, alphabet, codes);
  std::array<Entry, kHuffmanKraftSum> table;  // by the next bits, first bit lowest
  for (uint32_t s = 0; s < alphabet; ++s) {
    if (lengths[s] == 0) continue;
    for (uint32_t i = codes[s]; i < kHuffmanKraftSum; i += 1u << lengths[s]) {
      table[i] = {static_cast<uint8_t>(s), lengths[s]};
    }
  }

  ASSIGN_OR_RETURN(const uint32_t size, reader.Read<uint32_t>(what));
  ASSIGN_OR_RETURN(const auto bytes, reader.ReadBytes(size, what));
  const uint8_t* next = bytes.data();
  const uint8_t* const end = next + bytes.size();
  uint64_t pool = 0;
  int filled = 0;
  size_t i = 0;
  // Four codes need at most 48 bits; a refill brings the pool to 56 or more.
  for (; i + 4 <= n && end - next >= 8; i += 4) {
    uint64_t word;
    std::memcpy(&word, next, 8);
    pool |= word << filled;
    next += (63 - filled) >> 3;
    filled |= 56;
    for (int j = 0; j < 4; ++j) {
      const Entry e = table[pool & (kHuffmanKraftSum - 1)];
      out[i + j] = e.symbol;
      pool >>= e.length;
      filled -= e.length;
    }
  }
  if (filled < 64) pool &= (uint64_t{1} << filled) - 1;  // a refill leaves more bits than it counts
  for (; i < n; ++i) {
    while (filled <= 56 && next != end) {
      pool |= uint64_t{*next++} << filled;
      filled += 8;
    }
    const Entry e = table[pool & (kHuffmanKraftSum - 1)];
    if (e.length > filled) return Bad(what, "cut short in the Huffman codes");
    out[i] = e.symbol;
    pool >>= e.length;
    filled -= e.length;
  }
  if (next != end || filled >= 8) return Bad(what, "bytes behind the Huffman codes");
  if (pool != 0) return Bad(what, "filling bits are not 0");
  return absl::OkStatus();
}

}  // namespace

absl::Status DecodeHuffman(ByteReader& reader, size_t n, int bits, std::string_view what,
                           uint8_t* out) {
  const uint32_t alphabet = 1u << bits;
  ASSIGN_OR_RETURN(const uint8_t mode, reader.Read<uint8_t>(what));
  switch (static_cast<HuffmanMode>(mode)) {
    case HuffmanMode::kConstant: {
      ASSIGN_OR_RETURN(const uint8_t symbol, reader.Read<uint8_t>(what));
      if (symbol >= alphabet) {
        return Bad(what, absl::StrCat("symbol ", symbol, " of ", bits, " bits"));
      }
      std::fill_n(out, n, symbol);
      return absl::OkStatus();
    }
    case HuffmanMode::kCodes:
      return DecodeCodes(reader, n, alphabet, what, out);
  }
  return Bad(what,
             absl::StrCat("Huffman block mode ", mode, "; there are 1 (constant), 2 (Huffman)"));
}

}  // namespace sparkv
