// What the twins behind RansThirds share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/rans_constants.h"
#include "kernels/rans_thirds.h"

namespace sparkv::kernels::internal {

bool RansThirdsAvx2(const ThirdsInput& in, int16_t* values);  // x86-64 with AVX2 only
bool RansThirdsNeon(const ThirdsInput& in, int16_t* values);  // AArch64 only

// A fast twin does a whole group of 32 values while at least this much input is left, so that it
// need not ask lane by lane: 32 words at most are used or looked at.
inline constexpr ptrdiff_t kThirdsGroupBytes = 2 * kRansLanes;

inline bool LoadThirdsStates(const ThirdsInput& in, uint32_t* x) {
  const uint32_t n = RansLanes(in.length);
  if (in.states.size() != size_t{4} * n) return false;
  std::fill_n(x, kRansLanes, kRansLowerBound);
  std::memcpy(x, in.states.data(), size_t{4} * n);
  return std::all_of(x, x + n, [](uint32_t s) { return s >= kRansLowerBound; });
}

inline bool ThirdsAtEnd(const uint32_t* x, const uint8_t* next, const uint8_t* end) {
  return next == end &&
         std::all_of(x, x + kRansLanes, [](uint32_t s) { return s == kRansLowerBound; });
}

// The next n <= 32 values, one for each lane from lane 0. False when the words run out.
inline bool ThirdsGroup(const ThirdsModel& model, uint32_t n, uint32_t* x, const uint8_t** words,
                        const uint8_t* end, int16_t* values) {
  const uint8_t* next = *words;
  for (uint32_t i = 0; i < n; ++i) {
    const int32_t b = values[i];
    const uint32_t slot = x[i] & (kRansFrequencySum - 1);
    const uint32_t t1 = b == 0 ? model.zero_to_one : model.inward;
    const uint32_t t2 = b == 0 ? 2u * model.zero_to_one : uint32_t{model.inward} + model.same;
    const bool past1 = slot >= t1, past2 = slot >= t2;
    const uint32_t start = past2 ? t2 : past1 ? t1 : 0;
    const uint32_t f = past2 ? kRansFrequencySum - t2 : past1 ? t2 - t1 : t1;
    uint32_t s = f * (x[i] >> kRansFrequencyBits) + slot - start;
    if (s < kRansLowerBound) {
      if (end - next < 2) return false;
      uint16_t word;
      std::memcpy(&word, next, 2);
      next += 2;
      s = (s << 16) | word;
    }
    x[i] = s;
    const int32_t sign = b < 0 ? -1 : 1;
    const int32_t change = b == 0 ? (past2   ? 0
                                     : past1 ? -1
                                             : 1)
                                  : (past2   ? sign
                                     : past1 ? 0
                                             : -sign);
    values[i] = static_cast<int16_t>(3 * b + change);
  }
  *words = next;
  return true;
}

}  // namespace sparkv::kernels::internal
