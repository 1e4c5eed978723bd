// What the twins behind RansDecode share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/rans_decode.h"
#include "kernels/rans_states.h"

namespace sparkv::kernels::internal {

bool RansDecodeAvx2(const RansInput& in, uint8_t* out);  // x86-64 with AVX2 only
bool RansDecodeNeon(const RansInput& in, uint8_t* out);  // AArch64 only

// The next n <= 32 symbols, one for each lane from lane 0; shift as in RansInput. False when the
// words run out.
inline bool RansDecodeGroup(const RansTable& table, uint32_t n, int shift, RansStates* states,
                            const uint8_t** words, const uint8_t* end, uint8_t* out) {
  const uint8_t* next = *words;
  const int up = shift == 0 ? 8 : shift;  // 8: the old byte goes entirely
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t x = states->x[i];
    const uint32_t slot = x & (kRansFrequencySum - 1);
    const uint32_t e = table.entry[table.symbol_of_slot[slot]];
    uint32_t s = ((e & 0xFFF) + 1) * (x >> kRansFrequencyBits) + slot - ((e >> 12) & 0xFFF);
    if (!RansRefill(&s, &next, end)) return false;
    states->x[i] = s;
    out[i] = static_cast<uint8_t>((uint32_t{out[i]} << up) | e >> 24);
  }
  *words = next;
  return true;
}

// A run whose table has one symbol.
inline void RansFillRun(uint8_t symbol, uint32_t length, int shift, uint8_t* out) {
  if (shift == 0) {
    std::memset(out, symbol, length);
    return;
  }
  for (uint32_t i = 0; i < length; ++i) {
    out[i] = static_cast<uint8_t>((uint32_t{out[i]} << shift) | symbol);
  }
}

}  // namespace sparkv::kernels::internal
