#include <algorithm>
#include <cmath>
#include <set>

#include "tests/catch.h"
#include "tests/common/codec/codec_round_trip.h"

namespace sparkv {
namespace {

using testing::Block;
using testing::Decode;
using testing::Encode;
using testing::RandomBlock;
using testing::Views;

absl::Status DecodeStatus(const BlockShape& shape, const std::vector<std::string>& planes) {
  std::vector<uint16_t> k(shape.elements()), v(shape.elements());
  return (*FindDecoder("sparkv-paper"))
      ->DecodeBlock(shape, Views(planes, planes.size()), k.data(), v.data());
}

}  // namespace

TEST_CASE("sparkv-paper: 6, 5 and 4 bits in the thirds of the layers, and as many values") {
  const Block b = RandomBlock({1, 500, 16}, 2);
  for (const auto& [layer, bits] :
       {std::pair{0u, 6}, {9u, 6}, {10u, 5}, {19u, 5}, {20u, 4}, {29u, 4}}) {
    const std::vector<std::string> planes =
        Encode("sparkv-paper", b, {.layer = layer, .layers = 30});
    CHECK(int{planes[0][2]} == bits);
    for (size_t p = 1; p <= 3; ++p) {
      const Block got = Decode("sparkv-paper", b.shape, planes, p);
      CHECK(std::set(got.k.begin(), got.k.end()).size() <= size_t{1} << (bits + p - 1));
      CHECK(std::set(got.v.begin(), got.v.end()).size() <= size_t{1} << (bits + p - 1));
    }
  }
}

TEST_CASE("sparkv-paper: trained levels err less than as many uniform ones") {
  const Block b = RandomBlock({2, 1024, 64}, 4);
  const Block got = Decode("sparkv-paper", b.shape, Encode("sparkv-paper", b), 1);
  for (uint32_t h = 0; h < 2; ++h) {
    const size_t begin = b.At(h, 0, 0);
    const size_t end = begin + size_t{b.shape.tokens} * b.shape.head_dim;
    float lo = 1e9f, hi = -1e9f;
    for (size_t i = begin; i < end; ++i) {
      lo = std::min(lo, kernels::HalfToFloat(b.k[i]));
      hi = std::max(hi, kernels::HalfToFloat(b.k[i]));
    }
    double trained = 0, uniform = 0;
    for (size_t i = begin; i < end; ++i) {
      const float x = kernels::HalfToFloat(b.k[i]);
      const float cell = (hi - lo) / 64;
      const float middle = lo + (std::min(std::floor((x - lo) / cell), 63.0f) + 0.5f) * cell;
      trained += std::pow(x - kernels::HalfToFloat(got.k[i]), 2);
      uniform += std::pow(x - middle, 2);
    }
    CHECK(trained < 0.7 * uniform);
  }
}

TEST_CASE("sparkv-paper: no more distinct values than levels come back exactly") {
  Block b = RandomBlock({2, 300, 20}, 8);
  for (size_t i = 0; i < b.k.size(); ++i) {
    b.k[i] = kernels::FloatToHalf(static_cast<float>(i % 16) - 3.5f);
    b.v[i] = kernels::FloatToHalf(3.25f);
  }
  const std::vector<std::string> planes = Encode("sparkv-paper", b, {.layer = 2, .layers = 3});
  for (size_t p = 1; p <= 3; ++p) {
    const Block got = Decode("sparkv-paper", b.shape, planes, p);
    CHECK(got.k == b.k);
    CHECK(got.v == b.v);
  }
}

TEST_CASE("sparkv-paper refuses bits and codebooks that no encoder writes") {
  const Block b = RandomBlock({1, 1, 1}, 3);
  std::vector<std::string> planes = Encode("sparkv-paper", b, {.layer = 2, .layers = 3});
  REQUIRE_OK(DecodeStatus(b.shape, planes));
  for (const uint8_t bits : {0, 7, 255}) {
    std::vector<std::string> bad = planes;
    bad[0][2] = static_cast<char>(bits);
    const absl::Status s = DecodeStatus(b.shape, bad);
    CHECK(s.code() == absl::StatusCode::kDataLoss);
    CHECK(s.message().find("allowed 1..6") != absl::string_view::npos);
  }
  // A codebook of infinities: constant 0x7C in both bytes.
  std::vector<std::string> bad = planes;
  bad[0] = std::string("\x03\x00\x04\x01\x7c", 5);
  CHECK(DecodeStatus(b.shape, bad).message().find("sparkv-paper codebooks") !=
        absl::string_view::npos);
}

}  // namespace sparkv
