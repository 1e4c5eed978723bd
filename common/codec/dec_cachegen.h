// CacheGen as a baseline: a symmetric scale for each token, bins by layer and K|V; FORMAT.md
// section 4.4.
#pragma once

#include <cstdint>

#include "common/codec/codec.h"

namespace sparkv {

inline constexpr int kCachegenPlanes = 5;
inline constexpr int kCachegenSteps = 60;  // from 0 to the token's largest magnitude

// Steps that one cell of K (side 0) or V (side 1) covers when `planes` planes are known, for a side
// that begins with cells of `coarsest` (8 or 12).
inline constexpr int CachegenCell(int side, int coarsest, int planes) {
  constexpr int kCells[kCachegenPlanes] = {0, 4, 4, 2, 1};
  const bool coarse = planes == 1 || (planes == 2 && side == 1 && coarsest == 12);
  return coarse ? coarsest : kCells[planes - 1];
}

// The number of step 0: a whole number of cells and a half.
inline constexpr int CachegenZero(int coarsest) { return coarsest == 8 ? 60 : 66; }

const BlockDecoder* CachegenDecoder();

}  // namespace sparkv
