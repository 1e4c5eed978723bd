#include "kernels/rans_decode.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu_features.h"
#include "kernels/rans_decode_cpu.h"

namespace sparkv::kernels {

void RansTable::Build(std::span<const uint32_t> frequencies) {
  const auto alphabet = static_cast<uint32_t>(frequencies.size());
  few = alphabet <= kRansFewSymbols;
  one_symbol = false;
  uint32_t slot = 0;
  for (uint32_t s = 0; s < alphabet; ++s) {
    const uint32_t f = frequencies[s];
    if (f == kRansFrequencySum) {
      one_symbol = true;
      symbol = static_cast<uint8_t>(s);
    }
    if (f == 0) continue;
    entry[s] = (f - 1) | slot << 12 | s << 24;
    std::memset(symbol_of_slot + slot, static_cast<int>(s), f);
    slot += f;
  }
  if (!few) return;
  slot = 0;
  for (uint32_t s = 0; s < kRansFewSymbols; ++s) {
    const uint32_t f = s < alphabet ? frequencies[s] : 0;
    (s % 2 == 0 ? even_start : odd_start)[s / 2] = static_cast<uint16_t>(slot);
    (s % 2 == 0 ? even_frequency : odd_frequency)[s / 2] = static_cast<uint16_t>(f);
    slot += f;
  }
}

bool RansDecodeScalar(const RansInput& in, uint8_t* out) {
  internal::RansStates states;
  if (!internal::LoadRansStates(in.states, in.length, &states)) return false;
  const uint8_t* next = in.words.data();
  const uint8_t* const end = next + in.words.size();
  for (const uint8_t id : in.table_of_run) {
    for (uint32_t done = 0; done < in.length; done += kRansLanes) {
      const uint32_t n = std::min(kRansLanes, in.length - done);
      if (!internal::RansDecodeGroup(in.tables[id], n, in.shift, &states, &next, end, out + done)) {
        return false;
      }
    }
    out += in.length;
  }
  return internal::RansAtEnd(states, next, end);
}

bool RansDecode(const RansInput& in, uint8_t* out) {
#if defined(__x86_64__)
  if (HasAvx2()) return internal::RansDecodeAvx2(in, out);
#elif defined(__aarch64__)
  if (HasNeon()) return internal::RansDecodeNeon(in, out);
#endif
  return RansDecodeScalar(in, out);
}

}  // namespace sparkv::kernels
