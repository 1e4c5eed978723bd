// What the writer and the reader of refinement blocks must agree on; FORMAT.md section 3.1.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace sparkv {

inline constexpr size_t kRefineRun = 1024;  // symbols that share a table

// Bits of a symbol below `ways`, which is 2..8.
inline constexpr int RefineBits(int ways) { return ways <= 2 ? 1 : ways <= 4 ? 2 : 3; }

// Calls visit(i, place) for all n codes: the symbol of codes[i] is number `place`, symbols standing
// in ascending order of the codes and codes that are equal in their own order. visit may change
// codes[i]; n < 2^32. Four parts are walked at once, since each step through equal codes waits for
// the last.
template <typename Visit>
void ForEachRefined(const uint8_t* codes, size_t n, Visit visit) {
  constexpr size_t kParts = 4;
  const size_t part = n / kParts;
  std::array<std::array<uint32_t, 256>, kParts> next{};  // first counts, then places
  for (size_t i = 0; i < part; ++i) {
    for (size_t p = 0; p < kParts; ++p) ++next[p][codes[p * part + i]];
  }
  for (size_t i = kParts * part; i < n; ++i) ++next[kParts - 1][codes[i]];
  uint32_t place = 0;
  for (size_t q = 0; q < 256; ++q) {
    for (size_t p = 0; p < kParts; ++p) {
      const uint32_t count = next[p][q];
      next[p][q] = place;
      place += count;
    }
  }
  for (size_t i = 0; i < part; ++i) {
    for (size_t p = 0; p < kParts; ++p) {
      const size_t at = p * part + i;
      visit(at, next[p][codes[at]]++);
    }
  }
  for (size_t i = kParts * part; i < n; ++i) visit(i, next[kParts - 1][codes[i]]++);
}

}  // namespace sparkv
