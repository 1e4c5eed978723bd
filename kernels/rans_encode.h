// Interleaved rANS encoding, common/codec/FORMAT.md section 3: a scalar twin, and an AVX2 twin for
// small alphabets, chosen at run time. Both give the same words.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/rans_constants.h"

namespace sparkv::kernels {

// What a state needs to take up one symbol.
struct RansSymbol {
  uint32_t frequency = 0;  // 0: must not occur
  uint32_t start = 0;      // sum of the frequencies before it
  // x / f = (x * ceil(2^44 / f)) >> 44 exactly for x < f * 2^20 and f <= 2^12, and the product fits
  // 64 bits: with e < f what the ceiling adds, x * e < 2^44 and e * 2^20 < 2^44 / f (e = 0 for the
  // largest f).
  uint64_t reciprocal = 0;

  RansSymbol() = default;
  RansSymbol(uint32_t f, uint32_t c)
      : frequency(f), start(c), reciprocal(f > 0 ? ((uint64_t{1} << 44) - 1) / f + 1 : 0) {}
};

inline constexpr uint32_t kRansSmallAlphabet = 8;
// Words in front of those that RansPutRun writes that it may overwrite.
inline constexpr size_t kRansPutSlack = 8;

// Puts the symbols of one run into the states, the last one first: in [length], symbol j goes to
// lane j % kRansLanes and is table[in[j]] of `alphabet` entries, with a frequency above 0. What a
// state can't hold any more becomes a word in front of *next, which moves to it: at most `length`
// words, and kRansPutSlack more are undefined afterwards. states: [kRansLanes], each at least
// kRansLowerBound before and after. Nothing overlaps.
void RansPutRun(const RansSymbol* table, uint32_t alphabet, const uint8_t* in, uint32_t length,
                uint32_t* states, uint16_t** next);
void RansPutRunScalar(const RansSymbol* table, uint32_t alphabet, const uint8_t* in,
                      uint32_t length, uint32_t* states, uint16_t** next);  // the reference twin

}  // namespace sparkv::kernels
