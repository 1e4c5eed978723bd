// Blocks with the traits of real K and V, made from a seed.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/codec/codec.h"
#include "common/codec/enc_codec.h"
#include "kernels/half.h"

namespace sparkv::testing {

struct Block {
  BlockShape shape;
  std::vector<uint16_t> k;  // [kv_heads][tokens][head_dim] f16 bits
  std::vector<uint16_t> v;

  float K(uint32_t h, uint32_t t, uint32_t d) const { return kernels::HalfToFloat(k[At(h, t, d)]); }
  float V(uint32_t h, uint32_t t, uint32_t d) const { return kernels::HalfToFloat(v[At(h, t, d)]); }
  size_t At(uint32_t h, uint32_t t, uint32_t d) const {
    return (size_t{h} * shape.tokens + t) * shape.head_dim + d;
  }
  BlockInput input(const BlockPlace& place = {}) const {
    return {.shape = shape, .place = place, .k = k.data(), .v = v.data()};
  }
};

// Sums of uniform numbers: near normal, and the same on every machine, unlike
// std::normal_distribution.
class Normal {
 public:
  explicit Normal(uint32_t seed) : rng_(seed) {}
  float operator()() {
    uint32_t sum = 0;
    for (int i = 0; i < 12; ++i) sum += rng_() >> 12;
    return static_cast<float>(static_cast<double>(sum) / (1 << 20) - 6.0);
  }
  uint32_t Bits() { return static_cast<uint32_t>(rng_()); }

 private:
  std::mt19937 rng_;
};

// K channels of different mean and spread, V rows of different spread; the first token unlike the
// others.
inline Block RandomBlock(const BlockShape& shape, uint32_t seed) {
  Block b{shape, {}, {}};
  b.k.resize(shape.elements());
  b.v.resize(shape.elements());
  Normal normal(seed);
  for (uint32_t h = 0; h < shape.kv_heads; ++h) {
    for (uint32_t d = 0; d < shape.head_dim; ++d) {
      const float mean = 2.0f * normal();
      const float spread = 0.25f + std::abs(normal());
      for (uint32_t t = 0; t < shape.tokens; ++t) {
        const float x = mean + spread * normal() * (t == 0 ? 4.0f : 1.0f);
        b.k[b.At(h, t, d)] = kernels::FloatToHalf(x);
      }
    }
    for (uint32_t t = 0; t < shape.tokens; ++t) {
      const float spread = (t == 0 ? 0.01f : 0.1f) * (1.0f + std::abs(normal()));
      for (uint32_t d = 0; d < shape.head_dim; ++d) {
        b.v[b.At(h, t, d)] = kernels::FloatToHalf(spread * normal());
      }
    }
  }
  return b;
}

inline std::vector<std::span<const uint8_t>> Views(const std::vector<std::string>& planes,
                                                   size_t count) {
  std::vector<std::span<const uint8_t>> views;
  for (size_t i = 0; i < count; ++i) views.push_back(AsBytes(planes[i]));
  return views;
}

}  // namespace sparkv::testing
