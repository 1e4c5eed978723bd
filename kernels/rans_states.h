// The 32 states of the interleaved rANS decoders, whatever they decode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/rans_constants.h"

namespace sparkv::kernels::internal {

// A fast twin does a whole group of 32 lanes while at least this much input is left, so that it
// need not ask lane by lane: 32 words at most are used or looked at.
inline constexpr ptrdiff_t kRansGroupBytes = 2 * kRansLanes;

struct RansStates {
  alignas(32) uint32_t x[kRansLanes];
};

// Of runs of `length` symbols. False when `bytes` has another size or a state is below the lower
// bound.
inline bool LoadRansStates(std::span<const uint8_t> bytes, uint32_t length, RansStates* states) {
  const uint32_t n = RansLanes(length);
  if (bytes.size() != size_t{4} * n) return false;
  for (uint32_t& x : states->x) x = kRansLowerBound;
  std::memcpy(states->x, bytes.data(), size_t{4} * n);
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

// Gives a state below the lower bound its word. False when the words run out.
inline bool RansRefill(uint32_t* x, const uint8_t** next, const uint8_t* end) {
  if (*x >= kRansLowerBound) return true;
  if (end - *next < 2) return false;
  uint16_t word;
  std::memcpy(&word, *next, 2);
  *next += 2;
  *x = (*x << 16) | word;
  return true;
}

}  // namespace sparkv::kernels::internal
