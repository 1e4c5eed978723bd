#include "common/codec/enc_rans.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace sparkv {
uint64_t RansCost(uint32_t frequency) {
  static const auto* const table = [] {
    auto* t = new std::array<uint32_t, kRansFrequencySum + 1>{};
    for (uint32_t f = 1; f <= kRansFrequencySum; ++f) {
      (*t)[f] = static_cast<uint32_t>(std::lround(256.0 * (kRansFrequencyBits - std::log2(f))));
    }
    return t;
  }();
  return (*table)[frequency];
}

void NormalizeFrequencies(std::span<const uint64_t> counts, std::span<uint32_t> frequencies) {
  uint64_t total = 0;
  for (uint64_t c : counts) total += c;
  int64_t left = kRansFrequencySum;
  for (size_t s = 0; s < counts.size(); ++s) {
    frequencies[s] = 0;
    if (counts[s] == 0) continue;
    // counts are below 2^48, so the product fits.
    const uint64_t scaled = (counts[s] * kRansFrequencySum + total / 2) / total;
    frequencies[s] = static_cast<uint32_t>(std::max<uint64_t>(scaled, 1));
    left -= frequencies[s];
  }
  // What rounding left over goes to (or comes from) the largest, where it costs least. At most 256
  // symbols share 4096, so there is always one above 1 to take from.
  while (left != 0) {
    const auto largest = std::max_element(frequencies.begin(), frequencies.end());
    const int64_t give = left > 0 ? left : std::max(left, -static_cast<int64_t>(*largest / 2));
    *largest = static_cast<uint32_t>(*largest + give);
    left -= give;
  }
}

RansOutput RansEncode(std::span<const uint8_t> symbols, uint32_t length,
                      std::span<const uint8_t> table_of_run, std::span<const uint32_t> frequencies,
                      uint32_t alphabet) {
  std::vector<RansSymbol> known(frequencies.size());
  for (size_t base = 0; base < frequencies.size(); base += alphabet) {
    uint32_t sum = 0;
    for (uint32_t s = 0; s < alphabet; ++s) {
      known[base + s] = RansSymbol(frequencies[base + s], sum);
      sum += frequencies[base + s];
    }
  }
  RansOutput out;
  out.states.assign(RansLanes(length), kRansLowerBound);
  out.words.reserve(symbols.size() / 4);
  // rANS is last in, first out: symbols go in from the last to the first.
  for (size_t run = table_of_run.size(); run-- > 0;) {
    const RansSymbol* table = known.data() + size_t{table_of_run[run]} * alphabet;
    const uint8_t* in = symbols.data() + run * length;
    for (uint32_t j = length; j-- > 0;) {
      RansPut(table[in[j]], &out.states[j % kRansLanes], &out.words);
    }
  }
  std::reverse(out.words.begin(), out.words.end());
  return out;
}

}  // namespace sparkv
