#include "kernels/attention_decode.h"

#include <cmath>
#include <random>
#include <vector>

#include "kernels/half.h"
#include "tests/catch.h"

using namespace sparkv::kernels;

namespace {

struct Problem {
  size_t group, rows, dim;
  std::vector<float> q, k, v;

  Problem(size_t group, size_t rows, size_t dim, uint32_t seed)
      : group(group), rows(rows), dim(dim), q(group * dim), k(rows * dim), v(rows * dim) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> dist(0.0f, 1.0f);
    for (std::vector<float>* x : {&q, &k, &v}) {
      for (float& value : *x) value = dist(rng);
    }
  }
};

// Softmax attention by its definition, in double.
std::vector<double> Defined(const Problem& p, float scale) {
  std::vector<double> out(p.group * p.dim);
  for (size_t j = 0; j < p.group; ++j) {
    std::vector<double> score(p.rows);
    double largest = -INFINITY, sum = 0;
    for (size_t r = 0; r < p.rows; ++r) {
      for (size_t i = 0; i < p.dim; ++i) {
        score[r] += static_cast<double>(p.q[j * p.dim + i]) * p.k[r * p.dim + i] * scale;
      }
      largest = std::max(largest, score[r]);
    }
    for (double& s : score) sum += s = std::exp(s - largest);
    for (size_t r = 0; r < p.rows; ++r) {
      for (size_t i = 0; i < p.dim; ++i) out[j * p.dim + i] += score[r] / sum * p.v[r * p.dim + i];
    }
  }
  return out;
}

enum class Body { kF32, kF16, kScalar };

// In pieces of at most `piece` rows, as a paged cache gives them.
std::vector<float> Run(const Problem& p, float scale, size_t piece, Body body) {
  std::vector<float> max(p.group, -INFINITY), sum(p.group), mean(p.group * p.dim);
  const AttentionState state{max.data(), sum.data(), mean.data()};
  std::vector<uint16_t> k16(p.k.size()), v16(p.v.size());
  FloatToHalf(p.k.data(), k16.data(), p.k.size());
  FloatToHalf(p.v.data(), v16.data(), p.v.size());
  for (size_t r = 0; r < p.rows; r += piece) {
    const size_t n = std::min(piece, p.rows - r), at = r * p.dim;
    if (body == Body::kF16) {
      AttendRowsF16(p.q.data(), p.group, k16.data() + at, v16.data() + at, n, p.dim, scale, state);
    } else {
      const auto fn = body == Body::kF32 ? AttendRowsF32 : AttendRowsScalar;
      fn(p.q.data(), p.group, p.k.data() + at, p.v.data() + at, n, p.dim, scale, state);
    }
  }
  for (size_t i = 0; i < mean.size(); ++i) mean[i] /= sum[i / p.dim];
  return mean;
}

}  // namespace

TEST_CASE("attention over stored rows follows its definition") {
  for (const size_t group : {1u, 2u, 3u, 4u, 5u, 7u, 9u}) {
    for (const size_t dim : {8u, 12u, 24u, 64u, 128u}) {
      for (const size_t rows : {1u, 7u, 64u, 65u, 200u}) {
        INFO("group " << group << " dim " << dim << " rows " << rows);
        Problem p(group, rows, dim, static_cast<uint32_t>(group * 1000 + dim + rows));
        const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
        const std::vector<double> expected = Defined(p, scale);
        for (const Body body : {Body::kF32, Body::kScalar, Body::kF16}) {
          // f16 rows differ by their rounding, 2^-11 of each value.
          const double limit = body == Body::kF16 ? 5e-3 : 1e-5;
          for (const size_t piece : {size_t{64}, size_t{13}}) {
            const std::vector<float> got = Run(p, scale, piece, body);
            for (size_t i = 0; i < got.size(); ++i)
              REQUIRE(std::fabs(got[i] - expected[i]) <= limit);
          }
        }
      }
    }
  }
}

TEST_CASE("scores far apart neither overflow nor lose the largest") {
  Problem p(2, 70, 16, 9);
  for (size_t i = 0; i < 16; ++i) {
    p.q[i] = 30.0f;
    p.k[69 * 16 + i] = 30.0f;  // score 14,400 for query 0: all of its weight is on the last row
  }
  const std::vector<float> got = Run(p, 1.0f, 64, Body::kF32);
  for (size_t i = 0; i < 16; ++i) REQUIRE(got[i] == Approx(p.v[69 * 16 + i]));
}
