// The numbers of the interleaved rANS coder that its encoder and the decoding kernel share;
// common/codec/FORMAT.md section 3.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sparkv::kernels {

inline constexpr int kRansFrequencyBits = 12;
inline constexpr uint32_t kRansFrequencySum = 1u << kRansFrequencyBits;
inline constexpr uint32_t kRansLanes = 32;
inline constexpr uint32_t kRansLowerBound = 1u << 16;  // a state between symbols is never below

inline constexpr uint32_t RansLanes(uint32_t length) { return std::min(kRansLanes, length); }

}  // namespace sparkv::kernels
