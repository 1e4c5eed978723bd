// Interleaved rANS encoding, FORMAT.md section 3.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/codec/rans_common.h"

namespace sparkv {

// Scales counts to frequencies that sum to kRansFrequencySum; a symbol that occurs never gets 0.
// counts: at least one is not 0, at most 256 of them; same size as frequencies.
void NormalizeFrequencies(std::span<const uint64_t> counts, std::span<uint32_t> frequencies);

// Cost of a symbol of frequency 1..kRansFrequencySum in 1/256 bit: whole numbers, so that every
// machine chooses alike.
uint64_t RansCost(uint32_t frequency);

// What a state needs to take up one symbol.
struct RansSymbol {
  uint32_t frequency = 0;  // 0: must not occur
  uint32_t start = 0;      // sum of the frequencies before it
  // x / f = (x * ceil(2^44 / f)) >> 44 exactly for x < 2^32 and f <= 2^12: the error x * (f - 1)
  // stays below 2^44.
  uint64_t reciprocal = 0;

  RansSymbol() = default;
  RansSymbol(uint32_t f, uint32_t c)
      : frequency(f), start(c), reciprocal(f > 0 ? ((uint64_t{1} << 44) - 1) / f + 1 : 0) {}
};

// Puts a symbol on top of state *x. A word that the state can't hold any more goes to `words`,
// which the decoder reads from behind.
inline void RansPut(const RansSymbol& symbol, uint32_t* x, std::vector<uint16_t>* words) {
  __extension__ using Wide = unsigned __int128;
  if (*x >= uint64_t{symbol.frequency} << (32 - kRansFrequencyBits)) {
    words->push_back(static_cast<uint16_t>(*x));
    *x >>= 16;
  }
  const auto quotient = static_cast<uint32_t>((Wide{*x} * symbol.reciprocal) >> 44);
  *x = (quotient << kRansFrequencyBits) + (*x - quotient * symbol.frequency) + symbol.start;
}

struct RansOutput {
  std::vector<uint32_t> states;  // RansLanes(length)
  std::vector<uint16_t> words;   // in the order in which the decoder reads them
};

// symbols: [table_of_run.size()][length], length >= 1. frequencies: [tables][alphabet]; every
// symbol that occurs in a run must have a frequency in the run's table.
RansOutput RansEncode(std::span<const uint8_t> symbols, uint32_t length,
                      std::span<const uint8_t> table_of_run, std::span<const uint32_t> frequencies,
                      uint32_t alphabet);

}  // namespace sparkv
