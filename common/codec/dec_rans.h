// Interleaved rANS decoding, FORMAT.md section 3. A scalar twin and an AVX2 twin that is chosen at
// run time.
#pragma once

#include <cstdint>
#include <span>

#include "common/codec/rans_common.h"

namespace sparkv {

// One table, laid out for look-up by slot. 16 KiB.
struct RansTable {
  // symbol | (frequency - 1) << 8 | (slot - first slot of the symbol) << 20
  uint32_t entry[kRansFrequencySum];

  // frequencies: [alphabet], summing to kRansFrequencySum (checked by the caller); alphabet <= 256.
  void Build(std::span<const uint32_t> frequencies);
};

struct RansInput {
  std::span<const RansTable> tables;
  std::span<const uint8_t> table_of_run;  // [runs], each < tables.size()
  uint32_t length = 0;                    // symbols of a run, >= 1
  std::span<const uint8_t> states;        // 4 * RansLanes(length) bytes, little-endian
  std::span<const uint8_t> words;         // 2 bytes each, little-endian
  int shift = 0;                          // see RansDecode
};

// Writes out[i] = out[i] << shift | symbol (shift 0: out[i] = symbol) for all runs * length
// symbols, run after run. False, with out undefined, when a state is below the lower bound at the
// start, the words run out or are left over, or a state does not end at the lower bound.
bool RansDecode(const RansInput& input, uint8_t* out);
bool RansDecodeScalar(const RansInput& input, uint8_t* out);  // the reference twin

}  // namespace sparkv
