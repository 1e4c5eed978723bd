#include <algorithm>
#include <cmath>

#include "common/codec/dec_cachegen.h"
#include "common/codec/dec_halves.h"
#include "common/codec/enc_symbols.h"
#include "tests/catch.h"
#include "tests/common/codec/codec_round_trip.h"

namespace sparkv {
namespace {

using testing::Block;
using testing::Decode;
using testing::Encode;
using testing::RandomBlock;
using testing::Views;

constexpr BlockPlace kEarly{.layer = 0, .layers = 30};
constexpr BlockPlace kMiddle{.layer = 19, .layers = 30};
constexpr BlockPlace kLate{.layer = 20, .layers = 30};

absl::Status DecodeStatus(const BlockShape& shape, const std::vector<std::string>& planes) {
  std::vector<uint16_t> k(shape.elements()), v(shape.elements());
  return (*FindDecoder("cachegen"))
      ->DecodeBlock(shape, Views(planes, planes.size()), k.data(), v.data());
}

}  // namespace

TEST_CASE("cachegen: cells by layer and side, each level's divide those of the level below") {
  const Block b = RandomBlock({1, 20, 8}, 1);
  const auto cells = [&](const BlockPlace& place) {
    const std::string plane = Encode("cachegen", b, place)[0];
    return std::pair(int{plane[2]}, int{plane[3]});
  };
  CHECK(cells(kEarly) == std::pair(8, 8));
  CHECK(cells({.layer = 1, .layers = 30}) == std::pair(8, 8));
  CHECK(cells({.layer = 2, .layers = 30}) == std::pair(8, 12));
  CHECK(cells(kMiddle) == std::pair(8, 12));
  CHECK(cells(kLate) == std::pair(12, 12));
  for (const int coarsest : {8, 12}) {
    for (int side = 0; side < 2; ++side) {
      CHECK(CachegenCell(side, coarsest, 1) == coarsest);
      CHECK(CachegenCell(side, coarsest, 3) == 4);
      CHECK(CachegenCell(side, coarsest, 5) == 1);
      for (int p = 2; p <= kCachegenPlanes; ++p) {
        CHECK(CachegenCell(side, coarsest, p - 1) % CachegenCell(side, coarsest, p) == 0);
      }
    }
    CHECK(CachegenZero(coarsest) % coarsest == coarsest / 2);
  }
}

TEST_CASE("cachegen: every value is within half a cell of the token's scale") {
  for (const BlockShape& shape : testing::kShapes) {
    const Block b = RandomBlock(shape, 7);
    for (const BlockPlace& place : {kEarly, kMiddle, kLate}) {
      const std::vector<std::string> planes = Encode("cachegen", b, place);
      for (int p = 1; p <= kCachegenPlanes; ++p) {
        const Block got = Decode("cachegen", shape, planes, static_cast<size_t>(p));
        for (uint32_t t = 0; t < shape.tokens; ++t) {
          float k_scale = 0, v_scale = 0;
          bool within = true;
          for (uint32_t h = 0; h < shape.kv_heads; ++h) {
            for (uint32_t d = 0; d < shape.head_dim; ++d) {
              k_scale = std::max(k_scale, std::abs(b.K(h, t, d)));
              v_scale = std::max(v_scale, std::abs(b.V(h, t, d)));
            }
          }
          // Half a cell, f32 rounding next to a border, half an f16 unit.
          const float k_limit =
              k_scale * (0.501f * static_cast<float>(CachegenCell(0, planes[0][2], p)) / 60 +
                         1.1f / 2048) +
              1e-7f;
          const float v_limit =
              v_scale * (0.501f * static_cast<float>(CachegenCell(1, planes[0][3], p)) / 60 +
                         1.1f / 2048) +
              1e-7f;
          for (uint32_t h = 0; h < shape.kv_heads; ++h) {
            for (uint32_t d = 0; d < shape.head_dim; ++d) {
              within = within && std::abs(got.K(h, t, d) - b.K(h, t, d)) <= k_limit &&
                       std::abs(got.V(h, t, d) - b.V(h, t, d)) <= v_limit;
            }
          }
          REQUIRE(within);
        }
      }
    }
  }
}

TEST_CASE("cachegen: a level costs at most 1 % more than its cells coded alone") {
  const Block b = RandomBlock({3, 1024, 64}, 5);
  for (const BlockPlace& place : {kEarly, kMiddle, kLate}) {
    const std::vector<std::string> planes = Encode("cachegen", b, place);
    // Level 3 alone: symbols of 5 bits, told from the values, which lie in the middle of cells.
    const Block got = Decode("cachegen", b.shape, planes, 3);
    std::vector<uint8_t> symbols;
    for (int side = 0; side < 2; ++side) {
      const auto value = [&](const Block& from, uint32_t h, uint32_t t, uint32_t d) {
        return side == 0 ? from.K(h, t, d) : from.V(h, t, d);
      };
      std::vector<float> scales(b.shape.tokens);
      for (uint32_t t = 0; t < b.shape.tokens; ++t) {
        for (uint32_t h = 0; h < b.shape.kv_heads; ++h) {
          for (uint32_t d = 0; d < b.shape.head_dim; ++d) {
            scales[t] = std::max(scales[t], std::abs(value(b, h, t, d)));
          }
        }
      }
      const float zero = static_cast<float>(CachegenZero(planes[0][2 + side]));
      for (uint32_t h = 0; h < b.shape.kv_heads; ++h) {
        for (uint32_t d = 0; d < b.shape.head_dim; ++d) {
          for (uint32_t t = 0; t < b.shape.tokens; ++t) {
            const float step = value(got, h, t, d) / scales[t] * 60;
            symbols.push_back(static_cast<uint8_t>(std::lround((step + zero - 1.5f) / 4)));
          }
        }
      }
    }
    ByteWriter alone;
    EncodeSymbols(2 * 3 * 64, 1024, 5, symbols.data(), alone);
    ByteReader reader(AsBytes(planes[0]));
    REQUIRE_OK(reader.ReadBytes(4, "tag and cells"));
    REQUIRE_OK(DecodeHalves(reader, 2, 1024, "scales"));
    const size_t scale_bytes = planes[0].size() - reader.remaining();
    CHECK(static_cast<double>(testing::Bytes(planes, 3)) <
          1.01 * static_cast<double>(alone.size() + scale_bytes));
  }
}

TEST_CASE("cachegen refuses cells, scales and symbols that no encoder writes") {
  const Block b = RandomBlock({1, 1, 4}, 3);
  std::vector<std::string> planes = Encode("cachegen", b, kLate);
  REQUIRE_OK(DecodeStatus(b.shape, planes));
  std::vector<std::string> bad = planes;
  bad[0][2] = 9;
  CHECK(DecodeStatus(b.shape, bad).message().find("cachegen cell is 9") != absl::string_view::npos);
  // One token: mode 0 and four bytes are the scales.
  REQUIRE(planes[0][4] == 0);
  for (const uint8_t high : {0x7C, 0x80, 0xFC}) {
    bad = planes;
    bad[0][6] = static_cast<char>(high);
    CHECK(DecodeStatus(b.shape, bad).code() == absl::StatusCode::kDataLoss);
    CHECK(DecodeStatus(b.shape, bad).message().find("cachegen scales") != absl::string_view::npos);
  }
  // K's refinement from 12 to 4: mode 1, symbol 3.
  bad = planes;
  bad[1] = std::string("\x04\x01\x01\x03", 4);
  CHECK(DecodeStatus(b.shape, bad).message().find("cachegen finer K: symbol 3; allowed 0..2") !=
        absl::string_view::npos);
}

}  // namespace sparkv
