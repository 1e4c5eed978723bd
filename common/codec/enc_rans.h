// Interleaved rANS encoding, FORMAT.md section 3.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/codec/rans_common.h"
#include "kernels/rans_encode.h"

namespace sparkv {

// Scales counts to frequencies that sum to kRansFrequencySum; a symbol that occurs never gets 0.
// counts: at least one is not 0, at most 256 of them; same size as frequencies.
void NormalizeFrequencies(std::span<const uint64_t> counts, std::span<uint32_t> frequencies);

// Cost of a symbol of frequency 1..kRansFrequencySum in 1/256 bit: whole numbers, so that every
// machine chooses alike.
uint64_t RansCost(uint32_t frequency);

struct RansOutput {
  std::vector<uint32_t> states;  // RansLanes(length)
  std::vector<uint16_t> words;   // in the order in which the decoder reads them
};

// Encodes runs of `length` symbols. rANS is last in, first out: the last run is put first.
class RansEncoder {
 public:
  // length >= 1; `symbols` in all runs together at most.
  RansEncoder(uint32_t length, size_t symbols);
  // in: [length], symbol j is table[in[j]], whose frequency is not 0.
  void PutRun(std::span<const kernels::RansSymbol> table, const uint8_t* in);
  RansOutput Take() const;

 private:
  const uint32_t length_;
  uint32_t states_[kRansLanes];
  std::vector<uint16_t> words_;  // filled from the end, since the decoder reads the last word first
  uint16_t* next_;               // the word behind which the next one goes
};

// symbols: [table_of_run.size()][length], length >= 1. frequencies: [tables][alphabet]; every
// symbol that occurs in a run must have a frequency in the run's table.
RansOutput RansEncode(std::span<const uint8_t> symbols, uint32_t length,
                      std::span<const uint8_t> table_of_run, std::span<const uint32_t> frequencies,
                      uint32_t alphabet);

}  // namespace sparkv
