// Streams of THIRDS and their encoder, written from common/codec/FORMAT.md section 3.1 alone. (The
// codec's own encoder: common/codec/enc_planes.cc.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/rans_constants.h"
#include "kernels/rans_thirds.h"

namespace sparkv::kernels {

struct ThirdsStream {
  uint32_t length = 0;
  std::vector<ThirdsModel> models;  // [runs]
  std::vector<int16_t> coarse;      // [runs][length]
  std::vector<int16_t> fine;
  std::vector<uint32_t> states;
  std::vector<uint16_t> words;
};

struct ThirdsPart {
  uint32_t start = 0, frequency = 0;
};

// The slots of the step from coarse to fine.
inline ThirdsPart PartOf(const ThirdsModel& m, int coarse, int fine) {
  const int change = fine - 3 * coarse;
  if (coarse == 0) {
    const uint32_t one = m.zero_to_one;
    if (change == 1) return {0, one};
    if (change == -1) return {one, one};
    return {2 * one, kRansFrequencySum - 2 * one};
  }
  const int outward = coarse > 0 ? change : -change;
  if (outward == -1) return {0, m.inward};
  if (outward == 0) return {m.inward, m.same};
  return {uint32_t{m.inward} + m.same, kRansFrequencySum - m.inward - m.same};
}

// The decoder's steps backwards, from the last value to the first, by division. small_start: the
// first value's lane starts below the lower bound, if it can, in a stream that is right but for
// that.
inline void EncodeThirds(ThirdsStream* s, bool small_start = false) {
  s->states.assign(RansLanes(s->length), kRansLowerBound);
  s->words.clear();
  for (size_t i = s->coarse.size(); i-- > 0;) {
    const ThirdsPart p = PartOf(s->models[i / s->length], s->coarse[i], s->fine[i]);
    uint32_t& x = s->states[i % s->length % kRansLanes];
    if (x >= uint64_t{p.frequency} << 20 || (small_start && i == 0)) {
      s->words.push_back(static_cast<uint16_t>(x));
      x >>= 16;
    }
    x = ((x / p.frequency) << 12) + x % p.frequency + p.start;
  }
  std::reverse(s->words.begin(), s->words.end());
}

inline ThirdsModel RandomModel(std::mt19937& rng) {
  ThirdsModel m;
  m.zero_to_one = static_cast<uint16_t>(rng() % 4 == 0 ? 0 : rng() % 2049);
  m.inward = static_cast<uint16_t>(1 + rng() % 4094);
  m.same = static_cast<uint16_t>(1 + rng() % (4095u - m.inward));
  return m;
}

inline ThirdsStream RandomThirdsStream(std::mt19937& rng, uint32_t runs, uint32_t length,
                                       int most) {
  ThirdsStream s;
  s.length = length;
  for (uint32_t r = 0; r < runs; ++r) s.models.push_back(RandomModel(rng));
  for (size_t i = 0; i < size_t{runs} * length; ++i) {
    const ThirdsModel& m = s.models[i / length];
    const int b = rng() % 2 == 0 ? 0 : static_cast<int>(rng() % (2u * most + 1)) - most;
    const uint32_t slot = rng() % kRansFrequencySum;
    int change = 0;
    for (const int c : {-1, 0, 1}) {
      const ThirdsPart p = PartOf(m, b, 3 * b + c);
      if (slot >= p.start && slot < p.start + p.frequency) change = c;
    }
    s.coarse.push_back(static_cast<int16_t>(b));
    s.fine.push_back(static_cast<int16_t>(3 * b + change));
  }
  EncodeThirds(&s);
  return s;
}

}  // namespace sparkv::kernels
