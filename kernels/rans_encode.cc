#include "kernels/rans_encode.h"

#include "kernels/cpu_features.h"
#include "kernels/rans_encode_cpu.h"

namespace sparkv::kernels {

void RansPutRunScalar(const RansSymbol* table, uint32_t /*alphabet*/, const uint8_t* in,
                      uint32_t length, uint32_t* states, uint16_t** next) {
  uint16_t* to = *next;
  uint32_t j = length;
  for (; j % kRansLanes != 0; --j) {
    internal::RansPut(table[in[j - 1]], &states[(j - 1) % kRansLanes], &to);
  }
  while (j > 0) {
    for (uint32_t lane = kRansLanes; lane-- > 0;) {
      --j;
      internal::RansPut(table[in[j]], &states[lane], &to);
    }
  }
  *next = to;
}

void RansPutRun(const RansSymbol* table, uint32_t alphabet, const uint8_t* in, uint32_t length,
                uint32_t* states, uint16_t** next) {
#if defined(__x86_64__)
  if (alphabet <= kRansSmallAlphabet && HasAvx2()) {
    return internal::RansPutRunAvx2(table, alphabet, in, length, states, next);
  }
#endif
  RansPutRunScalar(table, alphabet, in, length, states, next);
}

}  // namespace sparkv::kernels
