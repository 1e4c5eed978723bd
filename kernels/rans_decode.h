// Interleaved rANS decoding, common/codec/FORMAT.md section 3: a scalar twin, an AVX2 twin chosen
// at run time and a NEON twin.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/rans_constants.h"

namespace sparkv::kernels {

inline constexpr uint32_t kRansFewSymbols = 16;

// One table, laid out for look-up. 5.2 KiB.
struct RansTable {
  uint8_t symbol_of_slot[kRansFrequencySum];
  // [symbol]: frequency - 1 | first slot << 12 | symbol << 24; absent symbols: unset
  uint32_t entry[256];

  // The same for alphabets of at most kRansFewSymbols symbols, small enough for registers: symbol
  // 2 * i is in [i] of the even arrays, 2 * i + 1 in the odd ones. Symbols beyond the alphabet
  // start at kRansFrequencySum. Only set when `few`.
  uint16_t even_start[8], odd_start[8];
  uint16_t even_frequency[8], odd_frequency[8];

  bool few;         // alphabet <= kRansFewSymbols
  bool one_symbol;  // one has all slots, so that states stay and no word is read
  uint8_t symbol;   // that one

  // frequencies: [alphabet], summing to kRansFrequencySum (checked by the caller); alphabet <= 256.
  void Build(std::span<const uint32_t> frequencies);
};

struct RansInput {
  std::span<const RansTable> tables;
  std::span<const uint8_t> table_of_run;  // [runs], each < tables.size()
  uint32_t length = 0;                    // symbols of a run, >= 1
  std::span<const uint8_t> states;        // 4 * RansLanes(length) bytes, little-endian
  std::span<const uint8_t> words;         // 2 bytes each, little-endian
  int shift = 0;                          // 0..8, see RansDecode
};

// Writes out[i] = out[i] << shift | symbol (shift 0: out[i] = symbol) for all runs * length
// symbols, run after run. False, with out undefined, when `states` has another size, a state is
// below the lower bound at the start, the words run out or are left over, or a state does not end
// at the lower bound. `out` overlaps nothing of the input.
bool RansDecode(const RansInput& input, uint8_t* out);
bool RansDecodeScalar(const RansInput& input, uint8_t* out);  // the reference twin

}  // namespace sparkv::kernels
