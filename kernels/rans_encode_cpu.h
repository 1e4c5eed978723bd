// What the twins behind RansPutRun share.
#pragma once

#include <cstdint>

#include "kernels/rans_encode.h"

namespace sparkv::kernels::internal {

// x86-64 with AVX2 only; alphabet <= kRansSmallAlphabet.
void RansPutRunAvx2(const RansSymbol* table, uint32_t alphabet, const uint8_t* in, uint32_t length,
                    uint32_t* states, uint16_t** next);

// One symbol into one state. Whether a word goes out is no branch: nobody could predict it.
inline void RansPut(const RansSymbol& symbol, uint32_t* state, uint16_t** next) {
  uint32_t x = *state;
  (*next)[-1] = static_cast<uint16_t>(x);
  const uint32_t full = x >> (32 - kRansFrequencyBits) >= symbol.frequency ? 1 : 0;
  *next -= full;
  x >>= 16 * full;
  const auto quotient = static_cast<uint32_t>((x * symbol.reciprocal) >> 44);
  *state = (quotient << kRansFrequencyBits) + (x - quotient * symbol.frequency) + symbol.start;
}

}  // namespace sparkv::kernels::internal
