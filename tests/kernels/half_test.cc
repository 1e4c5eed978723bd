#include "kernels/half.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/catch.h"

using namespace sparkv::kernels;

namespace {

std::vector<uint16_t> AllHalves() {
  std::vector<uint16_t> all(65536);
  for (uint32_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  return all;
}

// The value of a finite half by its definition.
double Defined(uint16_t half) {
  const int exponent = (half >> 10) & 0x1F;
  const int mantissa = half & 0x3FF;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace

TEST_CASE("every half has its defined value and comes back") {
  for (const uint16_t half : AllHalves()) {
    const float value = HalfToFloat(half);
    if ((half & 0x7C00) != 0x7C00) {
      REQUIRE(static_cast<double>(value) == Defined(half));
      REQUIRE(std::signbit(value) == ((half & 0x8000) != 0));
      REQUIRE(FloatToHalf(value) == half);
    } else if ((half & 0x3FF) == 0) {
      REQUIRE(std::isinf(value));
      REQUIRE(std::signbit(value) == ((half & 0x8000) != 0));
      REQUIRE(FloatToHalf(value) == half);
    } else {
      REQUIRE(std::isnan(value));
      REQUIRE((FloatToHalf(value) & 0x7FFF) > 0x7C00);
    }
  }
}

TEST_CASE("floats round to the nearest half, ties to even") {
  for (uint16_t low = 0; low < 0x7BFF; ++low) {
    const uint16_t high = static_cast<uint16_t>(low + 1);
    const float tie = static_cast<float>((Defined(low) + Defined(high)) / 2);  // exact in f32
    const uint16_t even = (low & 1) == 0 ? low : high;
    REQUIRE(FloatToHalf(tie) == even);
    REQUIRE(FloatToHalf(std::nextafter(tie, 0.0f)) == low);
    REQUIRE(FloatToHalf(std::nextafter(tie, 1e9f)) == high);
    REQUIRE(FloatToHalf(-tie) == (even | 0x8000));
  }
  CHECK(FloatToHalf(65519.996f) == 0x7BFF);
  CHECK(FloatToHalf(65520.0f) == 0x7C00);  // the tie with 65536 goes to infinity
  CHECK(FloatToHalf(1e30f) == 0x7C00);
  CHECK(FloatToHalf(-1e30f) == 0xFC00);
  CHECK(FloatToHalf(1e-30f) == 0);
  CHECK(FloatToHalf(-1e-30f) == 0x8000);
  CHECK(FloatToHalf(INFINITY) == 0x7C00);
  CHECK((FloatToHalf(NAN) & 0x7FFF) > 0x7C00);
}

// Also for NaN: the hardware and the scalar twin keep the same payload bits.
TEST_CASE("bulk conversion equals the scalar twin bit for bit, at every length") {
  const std::vector<uint16_t> halves = AllHalves();
  std::vector<float> a(halves.size()), b(halves.size());
  HalfToFloat(halves.data(), a.data(), halves.size());
  HalfToFloatScalar(halves.data(), b.data(), halves.size());
  for (size_t i = 0; i < a.size(); ++i) {
    REQUIRE(std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]));
  }

  std::mt19937 rng(7);
  std::vector<float> floats(200000);
  for (size_t i = 0; i < floats.size(); ++i) {
    uint32_t bits = static_cast<uint32_t>(rng());
    // Half of them inside the range of f16, subnormals included.
    if (i % 2 == 0) bits = (bits & 0x807FFFFFu) | ((100 + bits % 45) << 23);
    floats[i] = std::bit_cast<float>(bits);
  }
  std::vector<uint16_t> c(floats.size()), d(floats.size());
  FloatToHalf(floats.data(), c.data(), floats.size());
  FloatToHalfScalar(floats.data(), d.data(), floats.size());
  REQUIRE(c == d);

  for (size_t n = 0; n < 40; ++n) {
    std::vector<uint16_t> out(n + 1, 0xABCD);
    FloatToHalf(floats.data() + 1, out.data(), n);
    for (size_t i = 0; i < n; ++i) REQUIRE(out[i] == FloatToHalf(floats[i + 1]));
    REQUIRE(out[n] == 0xABCD);
    std::vector<float> back(n + 1, -5.0f);
    HalfToFloat(halves.data() + 15000, back.data(), n);
    for (size_t i = 0; i < n; ++i) REQUIRE(back[i] == HalfToFloat(halves[15000 + i]));
    REQUIRE(back[n] == -5.0f);
  }
}
