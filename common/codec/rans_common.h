// What the rANS coder and decoder must agree on; FORMAT.md section 3.
#pragma once

#include <cstdint>

#include "kernels/rans_constants.h"

namespace sparkv {

using kernels::kRansFrequencyBits;
using kernels::kRansFrequencySum;
using kernels::kRansLanes;
using kernels::kRansLowerBound;
using kernels::RansLanes;

inline constexpr uint32_t kMaxRansTables = 64;

enum class SymbolMode : uint8_t { kRaw = 0, kConstant = 1, kRans = 2 };

// A frequency is written as its width in bits and what is below its top bit; this width stands for
// a run of absent symbols instead.
inline constexpr uint32_t kRansZeroRun = 14;
inline constexpr int kRansZeroRunBits = 8;  // of the run's length - 1

// Bits of a run's table number.
inline constexpr int RansTableIdBits(uint32_t tables) {
  int bits = 0;
  while ((1u << bits) < tables) ++bits;
  return bits;
}

}  // namespace sparkv
