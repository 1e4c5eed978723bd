// The NEON twin of RansThirds: 32 lanes are eight registers.
#include "kernels/rans_refill_neon.h"
#include "kernels/rans_thirds_cpu.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include <algorithm>

namespace sparkv::kernels::internal {
namespace {

struct Thresholds {
  uint32x4_t zero1, zero2, other1, other2;
};

// Four values and their lanes.
inline int32x4_t Step(const Thresholds& t, int32x4_t b, uint32x4_t* x, const uint8_t** next) {
  const uint32x4_t zero = vceqq_s32(b, vdupq_n_s32(0));
  const uint32x4_t t1 = vbslq_u32(zero, t.zero1, t.other1);
  const uint32x4_t t2 = vbslq_u32(zero, t.zero2, t.other2);
  const uint32x4_t slot = vandq_u32(*x, vdupq_n_u32(kRansFrequencySum - 1));
  const uint32x4_t below1 = vcltq_u32(slot, t1);
  const uint32x4_t below2 = vcltq_u32(slot, t2);
  // [0, t1), [t1, t2) or [t2, sum).
  const uint32x4_t start = vbslq_u32(below2, vbicq_u32(t1, below1), t2);
  const uint32x4_t stop =
      vbslq_u32(below1, t1, vbslq_u32(below2, t2, vdupq_n_u32(kRansFrequencySum)));
  const uint32x4_t s = vmlaq_u32(vsubq_u32(slot, start), vsubq_u32(stop, start),
                                 vshrq_n_u32(*x, kRansFrequencyBits));
  *x = Refill(s, next);

  // Of a zero +1, -1, 0 in the three parts of the slots; of another value -sign, 0, +sign.
  const int32x4_t one = vdupq_n_s32(1);
  const int32x4_t from_zero = vbslq_s32(below1, one, vreinterpretq_s32_u32(below2));
  const int32x4_t sign = vbslq_s32(vcltq_s32(b, vdupq_n_s32(0)), vdupq_n_s32(-1), one);
  const int32x4_t from_other =
      vbslq_s32(below1, vnegq_s32(sign), vbicq_s32(sign, vreinterpretq_s32_u32(below2)));
  return vmlaq_n_s32(vbslq_s32(zero, from_zero, from_other), b, 3);
}

}  // namespace

bool RansThirdsNeon(const ThirdsInput& in, int16_t* values) {
  RansStates states;
  if (!LoadRansStates(in.states, in.length, &states)) return false;
  const uint8_t* next = in.words.data();
  const uint8_t* const end = next + in.words.size();
  for (const ThirdsModel& model : in.model_of_run) {
    const Thresholds t{vdupq_n_u32(model.zero_to_one), vdupq_n_u32(2u * model.zero_to_one),
                       vdupq_n_u32(model.inward), vdupq_n_u32(uint32_t{model.inward} + model.same)};
    uint32x4_t x[8];
    for (int v = 0; v < 8; ++v) x[v] = vld1q_u32(states.x + 4 * v);
    uint32_t done = 0;
    for (; in.length - done >= kRansLanes && end - next >= kRansGroupBytes; done += kRansLanes) {
      for (int v = 0; v < 4; ++v) {
        int16_t* at = values + done + 8 * v;
        const int16x8_t b = vld1q_s16(at);
        const int32x4_t low = Step(t, vmovl_s16(vget_low_s16(b)), &x[2 * v], &next);
        const int32x4_t high = Step(t, vmovl_s16(vget_high_s16(b)), &x[2 * v + 1], &next);
        vst1q_s16(at, vcombine_s16(vmovn_s32(low), vmovn_s32(high)));
      }
    }
    for (int v = 0; v < 8; ++v) vst1q_u32(states.x + 4 * v, x[v]);
    while (done < in.length) {
      const uint32_t n = std::min(kRansLanes, in.length - done);
      if (!ThirdsGroup(model, n, &states, &next, end, values + done)) return false;
      done += n;
    }
    values += in.length;
  }
  return RansAtEnd(states, next, end);
}

}  // namespace sparkv::kernels::internal
#endif
