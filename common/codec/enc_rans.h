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
