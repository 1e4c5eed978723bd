// What prefills have attended to, counted as they ran.
#pragma once

#include <cstdint>

namespace sparkv {

// Key blocks (64 keys) of query blocks (128 rows or the rest of a step), over all query heads and
// layers.
struct AttentionWork {
  uint64_t seen = 0;     // by causal rows
  uint64_t visited = 0;  // fewer where attention is sparse
  double select_s = 0;   // wall time of choosing them
  double attend_s = 0;   // wall time of attending to them
};

// The share of the attention mass that active blocks hold.
inline constexpr float kMeasuredMass = 0.98f;

// The mean of active blocks (kernels/block_select.h), being summed.
struct ActiveBlocksSum {
  uint64_t blocks = 0, samples = 0;
  // Rounded up; 0: no sample.
  uint32_t Mean() const {
    return samples == 0 ? 0 : static_cast<uint32_t>((blocks + samples - 1) / samples);
  }
};

}  // namespace sparkv
