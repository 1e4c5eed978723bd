// How four rANS lanes take their words, for the NEON twins.
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>

#include <cstdint>

#include "kernels/rans_constants.h"

namespace sparkv::kernels::internal {

// For each mask of four lanes that take a word: the byte look-up that brings each such lane its
// word from the next four into the low half, and 0 elsewhere (255 is beyond the table).
struct RansSpread {
  alignas(16) uint8_t control[16][16];
};
constexpr RansSpread MakeRansSpread() {
  RansSpread t{};
  for (int mask = 0; mask < 16; ++mask) {
    uint8_t next = 0;
    for (int lane = 0; lane < 4; ++lane) {
      const bool takes = ((mask >> lane) & 1) != 0;
      t.control[mask][4 * lane] = takes ? next : 255;
      t.control[mask][4 * lane + 1] = takes ? next + 1 : 255;
      t.control[mask][4 * lane + 2] = t.control[mask][4 * lane + 3] = 255;
      if (takes) next += 2;
    }
  }
  return t;
}
inline constexpr RansSpread kRansSpread = MakeRansSpread();

// Lanes below 2^16 take a word each.
inline uint32x4_t Refill(uint32x4_t s, const uint8_t** next) {
  constexpr uint32_t kLaneBits[4] = {1, 2, 4, 8};
  const uint32x4_t take = vcltq_u32(s, vdupq_n_u32(kRansLowerBound));
  const uint32_t mask = vaddvq_u32(vandq_u32(take, vld1q_u32(kLaneBits)));
  const uint8x16_t words = vcombine_u8(vld1_u8(*next), vdup_n_u8(0));
  const uint8x16_t spread = vqtbl1q_u8(words, vld1q_u8(kRansSpread.control[mask]));
  *next += 2 * __builtin_popcount(mask);
  const uint32x4_t up = vandq_u32(take, vdupq_n_u32(16));
  return vorrq_u32(vshlq_u32(s, vreinterpretq_s32_u32(up)), vreinterpretq_u32_u8(spread));
}

}  // namespace sparkv::kernels::internal
#endif
