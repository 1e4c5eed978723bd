// Encoding and decoding in tests, with what may not fail checked.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "common/codec/enc_codec.h"
#include "tests/catch.h"
#include "tests/common/codec/codec_testing.h"

namespace sparkv::testing {

inline std::vector<std::string> Encode(std::string_view codec, const Block& b,
                                       const BlockPlace& place = {}) {
  const auto encoder = FindEncoder(codec);
  REQUIRE_OK(encoder);
  auto planes = (*encoder)->EncodeBlock(b.input(place));
  REQUIRE_OK(planes);
  REQUIRE(planes->size() == static_cast<size_t>((*encoder)->info().planes));
  return *std::move(planes);
}

inline Block Decode(std::string_view codec, const BlockShape& shape,
                    const std::vector<std::string>& planes, size_t count) {
  Block b{shape, {}, {}};
  // 0x7E7E is a NaN: what the decoder does not write shows.
  b.k.assign(shape.elements(), 0x7E7E);
  b.v.assign(shape.elements(), 0x7E7E);
  const auto decoder = FindDecoder(codec);
  REQUIRE_OK(decoder);
  REQUIRE_OK((*decoder)->DecodeBlock(shape, Views(planes, count), b.k.data(), b.v.data()));
  return b;
}

struct Errors {
  double k = 0;  // root mean square
  double v = 0;
};

inline Errors RmsError(const Block& a, const Block& b) {
  Errors e;
  for (size_t i = 0; i < a.k.size(); ++i) {
    e.k += std::pow(kernels::HalfToFloat(a.k[i]) - kernels::HalfToFloat(b.k[i]), 2);
    e.v += std::pow(kernels::HalfToFloat(a.v[i]) - kernels::HalfToFloat(b.v[i]), 2);
  }
  const double n = static_cast<double>(a.k.size());
  return {std::sqrt(e.k / n), std::sqrt(e.v / n)};
}

inline const std::vector<BlockShape> kShapes = {{1, 1, 1},    {2, 1, 16},    {1, 4, 8},
                                                {2, 5, 7},    {1, 31, 33},   {3, 70, 64},
                                                {2, 257, 80}, {1, 1024, 20}, {2, 1000, 128}};

// Bytes of the first `count` planes.
inline size_t Bytes(const std::vector<std::string>& planes, size_t count) {
  size_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += planes[i].size();
  return sum;
}

}  // namespace sparkv::testing
