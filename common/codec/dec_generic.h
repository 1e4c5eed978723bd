// The codec for any model: per-channel K, per-token V, 8-bit codes in planes of 4 + 1 + 3 bits;
// FORMAT.md section 4.2.
#pragma once

#include <cstdint>

#include "common/codec/codec.h"

namespace sparkv {

inline constexpr int kGenericPlanes = 3;
inline constexpr int kGenericPlaneBits[kGenericPlanes] = {4, 1, 3};  // from the top of the code

const BlockDecoder* GenericDecoder();

}  // namespace sparkv
