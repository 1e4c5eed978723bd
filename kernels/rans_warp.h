// What the rANS kernels share: lane i of a warp is lane i of the stream.
#pragma once

#include <cstdint>

#include "kernels/cuda_device.h"
#include "kernels/rans_constants.h"

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {

static_assert(kRansLanes == kWarpSize);

inline constexpr uint32_t kRansWarps = 4;  // of a block, one for each scheduler of a multiprocessor

// The state of this lane, of runs of `length`; the bound for lanes that the stream lacks. False,
// for the whole warp, when the size is another or a state is below the bound.
__device__ inline bool LoadRansState(const uint8_t* bytes, uint32_t size, uint32_t length,
                                     uint32_t lane, uint32_t* x) {
  const uint32_t lanes = length < kRansLanes ? length : kRansLanes;
  if (size != 4 * lanes) return false;
  *x = kRansLowerBound;
  if (lane < lanes) {
    const uint8_t* const b = bytes + 4 * lane;
    *x = __ldg(b) | uint32_t{__ldg(b + 1)} << 8 | uint32_t{__ldg(b + 2)} << 16 |
         uint32_t{__ldg(b + 3)} << 24;
  }
  return __all_sync(kWholeWarp, *x >= kRansLowerBound) != 0;
}

// The words of a stream. The warp holds 96 of them, one of each 32 in a lane; the last 32 are on
// their way from memory while the first are used.
class RansWords {
 public:
  __device__ RansWords(const uint8_t* bytes, uint32_t size, uint32_t lane)
      : bytes_(bytes), count_(size / 2), lane_(lane) {
    now_ = Load(lane);
    next_ = Load(lane + 32);
    ahead_ = Load(lane + 64);
  }

  // Gives each state below the lower bound its word, in the order of the lanes. False, for the
  // whole warp, when the words run out.
  __device__ bool Refill(uint32_t* x) {
    const bool wants = *x < kRansLowerBound;
    const uint32_t wanting = __ballot_sync(kWholeWarp, wants);
    const uint32_t taken = static_cast<uint32_t>(__popc(wanting));
    if (count_ - first_ - used_ < taken) return false;
    const uint32_t at = used_ + static_cast<uint32_t>(__popc(wanting & ((1u << lane_) - 1)));
    const uint32_t from_now = __shfl_sync(kWholeWarp, now_, static_cast<int>(at % 32));
    const uint32_t from_next = __shfl_sync(kWholeWarp, next_, static_cast<int>(at % 32));
    if (wants) *x = *x << 16 | (at < 32 ? from_now : from_next);
    used_ += taken;
    if (used_ >= 32) {
      used_ -= 32;
      first_ += 32;
      now_ = next_;
      next_ = ahead_;
      ahead_ = Load(first_ + 64 + lane_);
    }
    return true;
  }

  // True for the whole warp when every word of `size` bytes was used and every state is at the
  // bound.
  __device__ bool AtEnd(uint32_t size, uint32_t x) const {
    return __all_sync(kWholeWarp, x == kRansLowerBound) != 0 && 2 * (first_ + used_) == size;
  }

 private:
  // By bytes: words may have any alignment.
  __device__ uint32_t Load(uint32_t i) const {
    if (i >= count_) return 0;
    const uint8_t* const b = bytes_ + size_t{2} * i;
    return __ldg(b) | uint32_t{__ldg(b + 1)} << 8;
  }

  const uint8_t* const bytes_;
  const uint32_t count_;  // below 2^31
  const uint32_t lane_;
  uint32_t first_ = 0;           // number of lane 0's word in now_
  uint32_t used_ = 0;            // of now_, below 32
  uint32_t now_, next_, ahead_;  // words first_ + lane, + 32, + 64
};

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
