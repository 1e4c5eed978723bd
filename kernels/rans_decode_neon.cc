// The NEON twin of RansDecode. 32 lanes are eight registers; the table is read lane by lane, the
// update and the refill work on four lanes.
#include "kernels/rans_decode_cpu.h"
#include "kernels/rans_refill_neon.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include <algorithm>

namespace sparkv::kernels::internal {
namespace {

// The symbol of each lane.
inline uint32x4_t Step(const RansTable& table, uint32x4_t* x, const uint8_t** next) {
  const uint32x4_t slot_mask = vdupq_n_u32(kRansFrequencySum - 1);
  const uint32x4_t slots = vandq_u32(*x, slot_mask);
  const uint32_t found[4] = {table.entry[table.symbol_of_slot[vgetq_lane_u32(slots, 0)]],
                             table.entry[table.symbol_of_slot[vgetq_lane_u32(slots, 1)]],
                             table.entry[table.symbol_of_slot[vgetq_lane_u32(slots, 2)]],
                             table.entry[table.symbol_of_slot[vgetq_lane_u32(slots, 3)]]};
  const uint32x4_t e = vld1q_u32(found);
  const uint32x4_t f = vaddq_u32(vandq_u32(e, slot_mask), vdupq_n_u32(1));
  const uint32x4_t in_symbol =
      vsubq_u32(slots, vandq_u32(vshrq_n_u32(e, kRansFrequencyBits), slot_mask));
  *x = Refill(vmlaq_u32(in_symbol, f, vshrq_n_u32(*x, kRansFrequencyBits)), next);
  return vshrq_n_u32(e, 24);
}

// Whole groups of a run while there is input enough; returns the symbols done.
inline uint32_t DecodeGroups(const RansTable& table, uint32_t length, int shift, RansStates* states,
                             const uint8_t** words, const uint8_t* end, uint8_t* out) {
  const int8x16_t up = vdupq_n_s8(static_cast<int8_t>(shift));
  const uint8_t* next = *words;
  uint32x4_t x[8];
  for (int v = 0; v < 8; ++v) x[v] = vld1q_u32(states->x + 4 * v);
  uint32_t done = 0;
  for (; length - done >= kRansLanes && end - next >= kRansGroupBytes; done += kRansLanes) {
    for (int half = 0; half < 2; ++half) {
      uint16x4_t s[4];
      for (int v = 0; v < 4; ++v) s[v] = vmovn_u32(Step(table, &x[4 * half + v], &next));
      uint8x16_t bytes =
          vcombine_u8(vmovn_u16(vcombine_u16(s[0], s[1])), vmovn_u16(vcombine_u16(s[2], s[3])));
      uint8_t* dst = out + done + 16 * half;
      if (shift != 0) bytes = vorrq_u8(bytes, vshlq_u8(vld1q_u8(dst), up));
      vst1q_u8(dst, bytes);
    }
  }
  for (int v = 0; v < 8; ++v) vst1q_u32(states->x + 4 * v, x[v]);
  *words = next;
  return done;
}

}  // namespace

bool RansDecodeNeon(const RansInput& in, uint8_t* out) {
  RansStates states;
  if (!LoadRansStates(in.states, in.length, &states)) return false;
  const uint8_t* next = in.words.data();
  const uint8_t* const end = next + in.words.size();
  for (const uint8_t id : in.table_of_run) {
    const RansTable& table = in.tables[id];
    if (table.one_symbol) {
      RansFillRun(table.symbol, in.length, in.shift, out);
      out += in.length;
      continue;
    }
    uint32_t done = DecodeGroups(table, in.length, in.shift, &states, &next, end, out);
    while (done < in.length) {
      const uint32_t n = std::min(kRansLanes, in.length - done);
      if (!RansDecodeGroup(table, n, in.shift, &states, &next, end, out + done)) return false;
      done += n;
    }
    out += in.length;
  }
  return RansAtEnd(states, next, end);
}

}  // namespace sparkv::kernels::internal
#endif
