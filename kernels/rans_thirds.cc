#include "kernels/rans_thirds.h"

#include <algorithm>

#include "kernels/cpu_features.h"
#include "kernels/rans_thirds_cpu.h"

namespace sparkv::kernels {

bool RansThirdsScalar(const ThirdsInput& in, int16_t* values) {
  internal::RansStates states;
  if (!internal::LoadRansStates(in.states, in.length, &states)) return false;
  const uint8_t* next = in.words.data();
  const uint8_t* const end = next + in.words.size();
  for (const ThirdsModel& model : in.model_of_run) {
    for (uint32_t done = 0; done < in.length; done += kRansLanes) {
      const uint32_t n = std::min(kRansLanes, in.length - done);
      if (!internal::ThirdsGroup(model, n, &states, &next, end, values + done)) return false;
    }
    values += in.length;
  }
  return internal::RansAtEnd(states, next, end);
}

bool RansThirds(const ThirdsInput& in, int16_t* values) {
#if defined(__x86_64__)
  if (HasAvx2()) return internal::RansThirdsAvx2(in, values);
#elif defined(__aarch64__)
  if (HasNeon()) return internal::RansThirdsNeon(in, values);
#endif
  return RansThirdsScalar(in, values);
}

}  // namespace sparkv::kernels
