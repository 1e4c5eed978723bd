// What holds for every codec that other systems are measured by.
#include <algorithm>
#include <cmath>
#include <random>
#include <span>

#include "tests/catch.h"
#include "tests/common/codec/codec_round_trip.h"

namespace sparkv {
namespace {

using testing::Block;
using testing::Decode;
using testing::Encode;
using testing::RandomBlock;
using testing::Views;

const char* const kBaselines[] = {"sparkv-paper", "cachegen", "kivi"};
// Each layer of these has other bits or bins.
const BlockPlace kPlaces[] = {
    {.layer = 0, .layers = 3}, {.layer = 1, .layers = 3}, {.layer = 2, .layers = 3}};

bool AllFinite(std::span<const uint16_t> halves) {
  return std::all_of(halves.begin(), halves.end(),
                     [](uint16_t bits) { return (bits & 0x7C00) != 0x7C00; });
}

}  // namespace

TEST_CASE("Baselines: each level costs more bytes than the one below and errs less") {
  const Block b = RandomBlock({3, 1024, 64}, 11);
  for (const std::string codec : kBaselines) {
    const CodecInfo& info = (*FindDecoder(codec))->info();
    for (const BlockPlace& place : kPlaces) {
      const std::vector<std::string> planes = Encode(codec, b, place);
      testing::Errors previous{1e9, 1e9};
      size_t previous_bytes = 0;
      for (const CodecLevel& level : info.levels) {
        const size_t count = static_cast<size_t>(level.planes);
        const testing::Errors e = RmsError(b, Decode(codec, b.shape, planes, count));
        INFO(codec << " layer " << place.layer << " level " << level.level);
        CHECK(e.k <= previous.k);
        CHECK(e.v <= previous.v);
        // CacheGen's planes 1 and 2 refine K or V alone in some layers, and neither in others.
        const bool only_tag = planes[count - 1].size() == 2;
        CHECK(e.k * e.v <= (only_tag ? 1.0 : 0.7) * previous.k * previous.v);
        CHECK(testing::Bytes(planes, count) > previous_bytes);
        previous = e;
        previous_bytes = testing::Bytes(planes, count);
      }
    }
  }
}

TEST_CASE("Baselines: every shape decodes at every level to finite values") {
  for (const std::string codec : kBaselines) {
    for (const BlockShape& shape : testing::kShapes) {
      const Block b = RandomBlock(shape, 7);
      for (const BlockPlace& place : kPlaces) {
        const std::vector<std::string> planes = Encode(codec, b, place);
        for (const CodecLevel& level : (*FindDecoder(codec))->info().levels) {
          const Block got = Decode(codec, shape, planes, static_cast<size_t>(level.planes));
          REQUIRE(AllFinite(got.k));
          REQUIRE(AllFinite(got.v));
        }
      }
    }
  }
}

TEST_CASE("Baselines: zeros stay near zero and cost next to nothing") {
  const BlockShape shape{2, 1024, 64};
  Block b{shape, std::vector<uint16_t>(shape.elements()), std::vector<uint16_t>(shape.elements())};
  for (const std::string codec : kBaselines) {
    const std::vector<std::string> planes = Encode(codec, b, kPlaces[2]);
    CHECK(testing::Bytes(planes, planes.size()) < 200);
    for (const CodecLevel& level : (*FindDecoder(codec))->info().levels) {
      const Block got = Decode(codec, shape, planes, static_cast<size_t>(level.planes));
      CHECK(got.k == b.k);
      CHECK(got.v == b.v);
    }
  }
}

TEST_CASE("Baselines: the largest and the smallest values f16 has") {
  for (const std::string codec : kBaselines) {
    for (const uint16_t magnitude : {uint16_t{0x7BFF}, uint16_t{0x0001}, uint16_t{0x03FF}}) {
      Block b = RandomBlock({1, 100, 18}, 1);
      for (size_t i = 0; i < b.k.size(); ++i) {
        b.k[i] = static_cast<uint16_t>(magnitude | (i % 2 << 15));
        b.v[i] = static_cast<uint16_t>(magnitude | (i % 3 == 0 ? 0x8000 : 0));
      }
      const float largest = kernels::HalfToFloat(magnitude);
      const std::vector<std::string> planes = Encode(codec, b, kPlaces[0]);
      for (const CodecLevel& level : (*FindDecoder(codec))->info().levels) {
        const Block got = Decode(codec, b.shape, planes, static_cast<size_t>(level.planes));
        for (size_t i = 0; i < b.k.size(); ++i) {
          // Two values only: at worst a quarter of their distance at 2 bits, and f16's own unit.
          const float limit = 0.5f * largest + 6e-8f;
          REQUIRE(std::abs(kernels::HalfToFloat(got.k[i]) - kernels::HalfToFloat(b.k[i])) <= limit);
          REQUIRE(std::abs(kernels::HalfToFloat(got.v[i]) - kernels::HalfToFloat(b.v[i])) <= limit);
        }
      }
    }
  }
}

TEST_CASE("Baselines: a value that is not finite is refused with its place") {
  for (const std::string codec : kBaselines) {
    for (const uint16_t bad : {uint16_t{0x7C00}, uint16_t{0xFC00}, uint16_t{0x7E01}}) {
      Block b = RandomBlock({2, 70, 16}, 5);
      b.v[b.At(1, 33, 9)] = bad;
      const absl::Status s = (*FindEncoder(codec))->EncodeBlock(b.input()).status();
      CHECK(s.code() == absl::StatusCode::kInvalidArgument);
      CHECK(s.message().find(codec + ": V is not finite at head 1, token 33, channel 9") !=
            absl::string_view::npos);
    }
  }
}

TEST_CASE("Baselines: flipped bytes give an error or finite values, never anything else") {
  const Block b = RandomBlock({2, 70, 18}, 9);
  std::mt19937 rng(3);
  for (const std::string codec : kBaselines) {
    const BlockDecoder* decoder = *FindDecoder(codec);
    const std::vector<std::string> planes = Encode(codec, b, kPlaces[2]);
    // What lies around the output must stay.
    std::vector<uint16_t> out(2 * b.k.size() + 2);
    int refused = 0;
    for (int trial = 0; trial < 2000; ++trial) {
      std::vector<std::string> broken = planes;
      std::string& plane = broken[rng() % broken.size()];
      plane[rng() % plane.size()] ^= static_cast<char>(1 + rng() % 255);
      std::fill(out.begin(), out.end(), uint16_t{0x7E7E});
      const absl::Status s = decoder->DecodeBlock(b.shape, Views(broken, broken.size()),
                                                  out.data() + 1, out.data() + 1 + b.k.size());
      REQUIRE(out.front() == 0x7E7E);
      REQUIRE(out.back() == 0x7E7E);
      if (!s.ok()) {
        REQUIRE(s.code() == absl::StatusCode::kDataLoss);
        ++refused;
        continue;
      }
      REQUIRE(AllFinite(std::span(out).subspan(1, out.size() - 2)));
    }
    CHECK(refused > 50);  // most bytes are symbols as they are, where any value is a symbol
  }
}

}  // namespace sparkv
