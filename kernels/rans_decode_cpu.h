// What the twins behind RansDecode share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/rans_decode.h"

namespace sparkv::kernels::internal {

bool RansDecodeAvx2(const RansInput& in, uint8_t* out);  // x86-64 with AVX2 only
bool RansDecodeNeon(const RansInput& in, uint8_t* out);  // AArch64 only

// A fast twin decodes a whole group of 32 symbols while at least this much input is left, so that
// it need not ask lane by lane: 32 words at most are used or looked at.
inline constexpr ptrdiff_t kRansGroupBytes = 2 * kRansLanes;

struct RansStates {
  alignas(32) uint32_t x[kRansLanes];
};

inline bool LoadRansStates(const RansInput& in, RansStates* states) {
  const uint32_t n = RansLanes(in.length);
  if (in.states.size() != size_t{4} * n) return false;
  for (uint32_t& x : states->x) x = kRansLowerBound;
  std::memcpy(states->x, in.states.data(), size_t{4} * n);
  for (uint32_t i = 0; i < n; ++i) {
    if (states->x[i] < kRansLowerBound) return false;
  }
  return true;
}

inline bool RansAtEnd(const RansStates& states, const uint8_t* next, const uint8_t* end) {
  for (uint32_t x : states.x) {
    if (x != kRansLowerBound) return false;
  }
  return next == end;
}

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
    if (s < kRansLowerBound) {
      if (end - next < 2) return false;
      uint16_t word;
      std::memcpy(&word, next, 2);
      next += 2;
      s = (s << 16) | word;
    }
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
