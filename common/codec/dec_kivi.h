// KIVI as a baseline: K in groups along tokens, V in groups along channels, asymmetric; FORMAT.md
// section 4.5.
#pragma once

#include <cstdint>

#include "common/codec/codec.h"

namespace sparkv {

inline constexpr uint32_t kMinKiviGroup = 32;  // smaller, and parameters outgrow codes
inline constexpr int kKiviPlanes = 5;
inline constexpr int kKiviPlaneBits[kKiviPlanes] = {2, 1, 1, 1, 3};  // from the top of the code

const BlockDecoder* KiviDecoder();

}  // namespace sparkv
