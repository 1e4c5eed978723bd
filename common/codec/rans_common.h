// What the rANS coder and decoder must agree on; FORMAT.md section 3.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sparkv {

inline constexpr int kRansFrequencyBits = 12;
inline constexpr uint32_t kRansFrequencySum = 1u << kRansFrequencyBits;
inline constexpr uint32_t kRansLanes = 32;
inline constexpr uint32_t kRansLowerBound = 1u << 16;  // a state between symbols is never below
inline constexpr uint32_t kMaxRansTables = 64;

enum class SymbolMode : uint8_t { kRaw = 0, kConstant = 1, kRans = 2 };

inline constexpr uint32_t RansLanes(uint32_t length) { return std::min(kRansLanes, length); }

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
