// Streams of interleaved rANS and their encoder, written from common/codec/FORMAT.md section 3
// alone. (The codec's own encoder: common/codec/enc_rans.cc.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/rans_constants.h"

namespace sparkv::kernels {

struct RansStream {
  uint32_t length = 0;
  std::vector<std::vector<uint32_t>> frequencies;  // [tables][alphabet]
  std::vector<uint8_t> table_of_run;
  std::vector<uint8_t> symbols;  // [runs][length]
  std::vector<uint32_t> states;
  std::vector<uint16_t> words;
};

// The decoder's steps backwards, from the last symbol to the first, by division. small_start: the
// first symbol's lane starts below the lower bound, if it can, in a stream that is right but for
// that.
inline void EncodeRans(RansStream* s, bool small_start = false) {
  s->states.assign(RansLanes(s->length), kRansLowerBound);
  for (size_t i = s->symbols.size(); i-- > 0;) {
    const auto& f = s->frequencies[s->table_of_run[i / s->length]];
    const uint32_t symbol = s->symbols[i];
    const uint32_t start = std::accumulate(f.begin(), f.begin() + symbol, 0u);
    uint32_t& x = s->states[i % s->length % kRansLanes];
    if (x >= uint64_t{f[symbol]} << 20 || (small_start && i == 0)) {
      s->words.push_back(static_cast<uint16_t>(x));
      x >>= 16;
    }
    x = ((x / f[symbol]) << 12) + x % f[symbol] + start;
  }
  std::reverse(s->words.begin(), s->words.end());
}

// Frequencies of a random kind: even, skewed, few present, or (often) a single symbol.
inline std::vector<uint32_t> RandomFrequencies(std::mt19937& rng, uint32_t alphabet) {
  std::vector<uint32_t> f(alphabet);
  const uint32_t kind = rng() % 5;
  if (kind == 0) {
    f[rng() % alphabet] = kRansFrequencySum;
    return f;
  }
  const uint32_t present = kind == 1 ? 2 : alphabet;
  for (uint32_t k = 0; k < present; ++k) f[kind == 1 ? rng() % alphabet : k] = 1;
  uint32_t left = kRansFrequencySum - std::accumulate(f.begin(), f.end(), 0u);
  for (uint32_t& each : f) {
    if (each == 0) continue;
    const uint32_t more = kind == 2 ? left / alphabet : rng() % (left + 1);
    each += more;
    left -= more;
  }
  *std::max_element(f.begin(), f.end()) += left;
  return f;
}

inline RansStream RandomRansStream(std::mt19937& rng, uint32_t alphabet, uint32_t tables,
                                   uint32_t runs, uint32_t length) {
  RansStream s;
  s.length = length;
  for (uint32_t t = 0; t < tables; ++t) s.frequencies.push_back(RandomFrequencies(rng, alphabet));
  for (uint32_t r = 0; r < runs; ++r) {
    s.table_of_run.push_back(static_cast<uint8_t>(r < tables ? r : rng() % tables));
    const auto& f = s.frequencies[s.table_of_run.back()];
    for (uint32_t i = 0; i < length; ++i) {
      uint32_t slot = rng() % kRansFrequencySum, symbol = 0;
      while (slot >= f[symbol]) slot -= f[symbol++];
      s.symbols.push_back(static_cast<uint8_t>(symbol));
    }
  }
  EncodeRans(&s);
  return s;
}

}  // namespace sparkv::kernels
