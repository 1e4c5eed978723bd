#include "kernels/row_ops.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/catch.h"

using namespace sparkv::kernels;

namespace {

std::vector<float> Normal(size_t n, uint32_t seed, float sigma = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> dist(0.0f, sigma);
  std::vector<float> x(n);
  for (float& v : x) v = dist(rng);
  return x;
}

bool Near(float a, float b, float relative) {
  return std::fabs(a - b) <= relative * std::max({std::fabs(a), std::fabs(b), 1e-3f});
}

// Lengths around the widths of vectors and of unrolled loops.
const std::vector<size_t> kLengths = {1, 2, 7, 8, 9, 15, 16, 17, 24, 64, 576, 577};

}  // namespace

TEST_CASE("RmsNorm follows its definition") {
  for (const size_t n : kLengths) {
    INFO(n);
    const std::vector<float> x = Normal(n, 1, 3.0f), w = Normal(n, 2);
    std::vector<float> fast(n), scalar(n);
    RmsNorm(x.data(), w.data(), 1e-5f, fast.data(), n);
    RmsNormScalar(x.data(), w.data(), 1e-5f, scalar.data(), n);
    double sum = 0;
    for (const float v : x) sum += static_cast<double>(v) * v;
    const double root = std::sqrt(sum / static_cast<double>(n) + 1e-5);
    for (size_t i = 0; i < n; ++i) {
      const auto expected = static_cast<float>(x[i] / root * w[i]);
      REQUIRE(Near(scalar[i], expected, 1e-6f));
      REQUIRE(Near(fast[i], expected, 1e-5f));
    }
    std::vector<float> in_place = x;
    RmsNorm(in_place.data(), w.data(), 1e-5f, in_place.data(), n);
    REQUIRE(in_place == fast);
  }
}

TEST_CASE("SiluMul follows its definition, also far from zero") {
  for (const size_t n : kLengths) {
    std::vector<float> gate = Normal(n, 3, 20.0f);
    const std::vector<float> up = Normal(n, 4);
    gate[0] = -200.0f;  // exp(200) is not finite in f32
    gate[n - 1] = n > 1 ? 200.0f : gate[0];
    std::vector<float> fast(n), scalar(n);
    SiluMul(gate.data(), up.data(), fast.data(), n);
    SiluMulScalar(gate.data(), up.data(), scalar.data(), n);
    for (size_t i = 0; i < n; ++i) {
      const double g = gate[i];
      const auto expected = static_cast<float>(g / (1.0 + std::exp(-g)) * up[i]);
      INFO(n << " " << i << " gate " << gate[i]);
      REQUIRE(std::fabs(fast[i] - expected) <= 1e-6f * std::fabs(expected) + 1e-30f);
      REQUIRE(std::fabs(scalar[i] - expected) <= 1e-6f * std::fabs(expected) + 1e-30f);
    }
  }
}

TEST_CASE("rotary embedding turns pairs by their angle") {
  for (const size_t pairs : {1u, 3u, 4u, 5u, 8u, 32u}) {
    const std::vector<float> x = Normal(2 * pairs, 5);
    std::vector<float> c(pairs), s(pairs);
    for (size_t i = 0; i < pairs; ++i) {
      c[i] = std::cos(0.3f * static_cast<float>(i + 1));
      s[i] = std::sin(0.3f * static_cast<float>(i + 1));
    }
    std::vector<float> fast = x, scalar = x, half = x;
    RopeInterleaved(fast.data(), c.data(), s.data(), pairs);
    RopeInterleavedScalar(scalar.data(), c.data(), s.data(), pairs);
    RopeSplitHalf(half.data(), c.data(), s.data(), pairs);
    for (size_t i = 0; i < pairs; ++i) {
      const auto check = [&](const std::vector<float>& y, size_t a, size_t b) {
        REQUIRE(y[a] == Approx(x[a] * c[i] - x[b] * s[i]).margin(1e-6));
        REQUIRE(y[b] == Approx(x[a] * s[i] + x[b] * c[i]).margin(1e-6));
      };
      check(fast, 2 * i, 2 * i + 1);
      check(scalar, 2 * i, 2 * i + 1);
      check(half, i, i + pairs);
    }
  }
}

TEST_CASE("an online softmax over blocks equals the softmax of the whole row") {
  for (const auto fn : {SoftmaxBlock, SoftmaxBlockScalar}) {
    for (const size_t block : {1u, 5u, 8u, 13u, 64u, 200u}) {
      const std::vector<float> x = Normal(150, 6, 30.0f);
      std::vector<float> y = x;
      float max = -INFINITY, sum = 0;
      for (size_t at = 0; at < y.size(); at += block) {
        const size_t n = std::min(block, y.size() - at);
        const float factor = fn(&y[at], n, 0.5f, &max, &sum);
        for (size_t i = 0; i < at; ++i) y[i] *= factor;
      }
      double total = 0;
      const float largest = *std::max_element(x.begin(), x.end());
      for (const float v : x) total += std::exp(0.5 * (static_cast<double>(v) - largest));
      REQUIRE(max == Approx(0.5f * largest));
      REQUIRE(sum == Approx(total).epsilon(1e-5));
      for (size_t i = 0; i < x.size(); ++i) {
        REQUIRE(y[i] == Approx(std::exp(0.5 * (static_cast<double>(x[i]) - largest)))
                            .epsilon(1e-4)
                            .margin(1e-9));
      }
    }
    float max = 3.0f, sum = 2.0f;
    REQUIRE(fn(nullptr, 0, 1.0f, &max, &sum) == 1.0f);
    REQUIRE(max == 3.0f);
    REQUIRE(sum == 2.0f);
  }
}
