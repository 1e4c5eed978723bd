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

RansEncoder::RansEncoder(uint32_t length, size_t symbols)
    : length_(length), words_(symbols + kernels::kRansPutSlack) {
  std::fill(std::begin(states_), std::end(states_), kRansLowerBound);
  next_ = words_.data() + words_.size();
}

void RansEncoder::PutRun(std::span<const kernels::RansSymbol> table, const uint8_t* in) {
  kernels::RansPutRun(table.data(), static_cast<uint32_t>(table.size()), in, length_, states_,
                      &next_);
}

RansOutput RansEncoder::Take() const {
  RansOutput out;
  out.states.assign(states_, states_ + RansLanes(length_));
  out.words.assign(static_cast<const uint16_t*>(next_), words_.data() + words_.size());
  return out;
}

RansOutput RansEncode(std::span<const uint8_t> symbols, uint32_t length,
                      std::span<const uint8_t> table_of_run, std::span<const uint32_t> frequencies,
                      uint32_t alphabet) {
  std::vector<kernels::RansSymbol> known(frequencies.size());
  for (size_t base = 0; base < frequencies.size(); base += alphabet) {
    uint32_t sum = 0;
    for (uint32_t s = 0; s < alphabet; ++s) {
      known[base + s] = kernels::RansSymbol(frequencies[base + s], sum);
      sum += frequencies[base + s];
    }
  }
  RansEncoder encoder(length, symbols.size());
  for (size_t run = table_of_run.size(); run-- > 0;) {
    encoder.PutRun(std::span(known).subspan(size_t{table_of_run[run]} * alphabet, alphabet),
                   symbols.data() + run * length);
  }
  return encoder.Take();
}

}  // namespace sparkv
