#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/catch.h"
#include "tests/common/codec/codec_round_trip.h"

namespace sparkv {
namespace {

using testing::Block;
using testing::Decode;
using testing::Encode;
using testing::RandomBlock;
using testing::Views;

constexpr uint32_t kGroup = 64;

// Half a cell of each level, in steps of the 4-bit code.
constexpr double kHalfCell[] = {2, 1, 0.5, 0.25, 0.03125};

// Calls check(lowest, highest, members) for every group of K (side 0) or V.
template <typename Check>
void ForEachGroup(const Block& b, int side, Check check) {
  const BlockShape& s = b.shape;
  const uint32_t along = side == 0 ? s.tokens : s.head_dim;
  const uint32_t across = side == 0 ? s.head_dim : s.tokens;
  for (uint32_t h = 0; h < s.kv_heads; ++h) {
    for (uint32_t i = 0; i < across; ++i) {
      for (uint32_t begin = 0; begin < along; begin += kGroup) {
        std::vector<size_t> members;
        float lo = 1e9f, hi = -1e9f;
        for (uint32_t j = begin; j < std::min(begin + kGroup, along); ++j) {
          members.push_back(side == 0 ? b.At(h, j, i) : b.At(h, i, j));
          const float x = kernels::HalfToFloat((side == 0 ? b.k : b.v)[members.back()]);
          lo = std::min(lo, x);
          hi = std::max(hi, x);
        }
        check(lo, hi, members);
      }
    }
  }
}

absl::Status DecodeStatus(const BlockShape& shape, const std::vector<std::string>& planes) {
  std::vector<uint16_t> k(shape.elements()), v(shape.elements());
  return (*FindDecoder("kivi"))
      ->DecodeBlock(shape, Views(planes, planes.size()), k.data(), v.data());
}

}  // namespace

TEST_CASE("kivi: every value is within half a cell of its group") {
  for (const BlockShape& shape : testing::kShapes) {
    const Block b = RandomBlock(shape, 7);
    const std::vector<std::string> planes = Encode("kivi", b);
    for (size_t p = 1; p <= 5; ++p) {
      const Block got = Decode("kivi", shape, planes, p);
      for (int side = 0; side < 2; ++side) {
        ForEachGroup(b, side, [&](float lo, float hi, const std::vector<size_t>& members) {
          // step is at most an f16 unit above (hi - lo) / 15.
          const double step = (hi - lo) / 15 * (1 + 1.0 / 1024) + 6e-8;
          const double limit =
              step * kHalfCell[p - 1] * 1.001 + std::max(std::abs(lo), std::abs(hi)) / 2048 + 6e-8;
          for (const size_t i : members) {
            const float x = kernels::HalfToFloat((side == 0 ? b.k : b.v)[i]);
            const float y = kernels::HalfToFloat((side == 0 ? got.k : got.v)[i]);
            REQUIRE(std::abs(x - y) <= limit);
          }
        });
      }
    }
  }
}

TEST_CASE("kivi: level 4 is 4-bit KIVI with groups of 64: it keeps each group's least value") {
  const Block b = RandomBlock({2, 200, 80}, 3);
  const Block got = Decode("kivi", b.shape, Encode("kivi", b), 3);
  for (int side = 0; side < 2; ++side) {
    const std::vector<uint16_t>& want_side = side == 0 ? b.k : b.v;
    const std::vector<uint16_t>& got_side = side == 0 ? got.k : got.v;
    ForEachGroup(b, side, [&](float lo, float hi, const std::vector<size_t>& members) {
      const float step =
          kernels::HalfToFloat(kernels::FloatToHalf((hi - lo) / 15)) * (1 + 1.0f / 1024);
      for (const size_t i : members) {
        const float x = kernels::HalfToFloat(want_side[i]);
        if (x == lo) REQUIRE(kernels::HalfToFloat(got_side[i]) == lo);
        if (x == hi) {
          REQUIRE(std::abs(kernels::HalfToFloat(got_side[i]) - hi) <=
                  15 * step / 1024 + std::abs(hi) / 2048 + 1e-7f);
        }
      }
    });
  }
}

TEST_CASE("kivi: constant groups come back exactly at every level") {
  Block b = RandomBlock({1, 130, 70}, 5);
  std::fill(b.k.begin(), b.k.end(), kernels::FloatToHalf(3.25f));
  std::fill(b.v.begin(), b.v.end(), uint16_t{0x8001});  // the largest negative subnormal
  const std::vector<std::string> planes = Encode("kivi", b);
  CHECK(testing::Bytes(planes, planes.size()) < 2000);
  for (size_t p = 1; p <= 5; ++p) {
    const Block got = Decode("kivi", b.shape, planes, p);
    CHECK(got.k == b.k);
    CHECK(got.v == b.v);
  }
}

TEST_CASE("kivi refuses groups and steps that no encoder writes") {
  const Block b = RandomBlock({1, 1, 1}, 3);
  const std::vector<std::string> planes = Encode("kivi", b);
  REQUIRE_OK(DecodeStatus(b.shape, planes));
  for (const uint16_t group : {0, 31, 1025, 65535}) {
    std::vector<std::string> bad = planes;
    std::memcpy(bad[0].data() + 2, &group, 2);
    const absl::Status s = DecodeStatus(b.shape, bad);
    CHECK(s.code() == absl::StatusCode::kDataLoss);
    CHECK(s.message().find("allowed 32..1024") != absl::string_view::npos);
  }
  // K's parameters: mode 0, lo in two bytes, step in two.
  REQUIRE(planes[0][4] == 0);
  for (const uint8_t high : {0x7C, 0x80, 0xFC}) {
    std::vector<std::string> bad = planes;
    bad[0][8] = static_cast<char>(high);
    const absl::Status s = DecodeStatus(b.shape, bad);
    CHECK(s.code() == absl::StatusCode::kDataLoss);
    CHECK(s.message().find("kivi K parameters") != absl::string_view::npos);
  }
}

}  // namespace sparkv
