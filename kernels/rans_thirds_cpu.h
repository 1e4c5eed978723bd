// What the twins behind RansThirds share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/rans_states.h"
#include "kernels/rans_thirds.h"

namespace sparkv::kernels::internal {

bool RansThirdsAvx2(const ThirdsInput& in, int16_t* values);  // x86-64 with AVX2 only
bool RansThirdsNeon(const ThirdsInput& in, int16_t* values);  // AArch64 only

// The next n <= 32 values, one for each lane from lane 0. False when the words run out.
inline bool ThirdsGroup(const ThirdsModel& model, uint32_t n, RansStates* states,
                        const uint8_t** words, const uint8_t* end, int16_t* values) {
  const uint8_t* next = *words;
  uint32_t* const x = states->x;
  for (uint32_t i = 0; i < n; ++i) {
    const int32_t b = values[i];
    const uint32_t slot = x[i] & (kRansFrequencySum - 1);
    const uint32_t t1 = b == 0 ? model.zero_to_one : model.inward;
    const uint32_t t2 = b == 0 ? 2u * model.zero_to_one : uint32_t{model.inward} + model.same;
    const bool past1 = slot >= t1, past2 = slot >= t2;
    const uint32_t start = past2 ? t2 : past1 ? t1 : 0;
    const uint32_t f = past2 ? kRansFrequencySum - t2 : past1 ? t2 - t1 : t1;
    uint32_t s = f * (x[i] >> kRansFrequencyBits) + slot - start;
    if (!RansRefill(&s, &next, end)) return false;
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
