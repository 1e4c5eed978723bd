#include "kernels/prefill_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "tests/catch.h"

using namespace sparkv::kernels;

namespace {

struct FreeFloats {
  void operator()(float* p) const { std::free(p); }
};
using Floats = std::unique_ptr<float[], FreeFloats>;
Floats LineOf(size_t n) {
  return Floats(static_cast<float*>(std::aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64)));
}

struct Problem {
  size_t begin, rows, group, dim, capacity;
  std::vector<float> q, k_rows, v_rows;
  Floats k, v;

  Problem(size_t begin, size_t rows, size_t group, size_t dim, float spread)
      : begin(begin),
        rows(rows),
        group(group),
        dim(dim),
        capacity((begin + rows + 15) / 16 * 16 + 32),
        q(rows * group * dim),
        k_rows((begin + rows) * dim),
        v_rows(k_rows.size()),
        k(LineOf(KeyPanelFloats(capacity, dim))),
        v(LineOf(ValuePanelFloats(capacity, dim))) {
    std::mt19937 rng(static_cast<uint32_t>(begin * 31 + rows * 7 + dim));
    std::normal_distribution<float> normal(0.0f, spread);
    for (std::vector<float>* x : {&q, &k_rows, &v_rows}) {
      for (float& value : *x) value = normal(rng);
    }
    // What was there before must not matter, not even NaN.
    std::fill_n(k.get(), KeyPanelFloats(capacity, dim), NAN);
    std::fill_n(v.get(), ValuePanelFloats(capacity, dim), NAN);
    // In pieces, as pages come.
    for (size_t first = 0; first < begin + rows; first += 32) {
      const size_t count = std::min<size_t>(32, begin + rows - first);
      PackKeys(&k_rows[first * dim], count, dim, first, k.get());
      PackValues(&v_rows[first * dim], count, dim, first, capacity, v.get());
    }
  }

  PrefillAttentionArgs Args() const {
    return {.q = q.data(),
            .k = k.get(),
            .v = v.get(),
            .capacity = capacity,
            .group = group,
            .dim = dim,
            .begin = begin,
            .scale = 1.0f / std::sqrt(static_cast<float>(dim))};
  }
  size_t stride() const { return group * dim + 3; }

  std::vector<float> Run(size_t step) const {
    std::vector<float> out(rows * stride(), -7.0f);
    std::vector<float> scratch(PrefillAttentionScratchFloats(step, group, dim));
    for (size_t r = 0; r < rows; r += step) {
      PrefillAttention(Args(), r, std::min(rows, r + step), scratch.data(), out.data(), stride());
    }
    return out;
  }

  // The definition over the rows as they were, in double.
  std::vector<double> Defined() const {
    std::vector<double> out(rows * stride(), -7.0);
    for (size_t r = 0; r < rows; ++r) {
      for (size_t g = 0; g < group; ++g) {
        std::vector<double> weight(begin + r + 1);
        double max = -INFINITY, sum = 0;
        for (size_t key = 0; key < weight.size(); ++key) {
          for (size_t d = 0; d < dim; ++d)
            weight[key] += double{q[(r * group + g) * dim + d]} * k_rows[key * dim + d];
          weight[key] *= 1.0f / std::sqrt(static_cast<float>(dim));
          max = std::max(max, weight[key]);
        }
        for (double& w : weight) sum += w = std::exp(w - max);
        for (size_t d = 0; d < dim; ++d) {
          double& to = out[r * stride() + g * dim + d] = 0;
          for (size_t key = 0; key < weight.size(); ++key)
            to += weight[key] / sum * v_rows[key * dim + d];
        }
      }
    }
    return out;
  }
};

double Error(const std::vector<float>& got, const std::vector<double>& want) {
  double error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    error = std::max(error, std::fabs(got[i] - want[i]));
  }
  return error;
}

}  // namespace

TEST_CASE("prefill attention follows its definition at every edge of blocks and panels") {
  for (const size_t begin : {0, 1, 15, 16, 240, 255, 256, 257, 600}) {
    for (const size_t rows : {1, 5, 16, 33, 130}) {
      for (const size_t group : {1, 3, 4}) {
        for (const size_t dim : {16, 64, 40}) {
          const Problem p(begin, rows, group, dim, 1.0f);
          INFO(begin << " keys before " << rows << " rows, group " << group << ", dim " << dim);
          const std::vector<double> want = p.Defined();
          REQUIRE(Error(p.Run(rows), want) < 2e-5);
          std::vector<float> scalar(rows * p.stride(), -7.0f);
          PrefillAttentionScalar(p.Args(), 0, rows, scalar.data(), p.stride());
          REQUIRE(Error(scalar, want) < 1e-5);
        }
      }
    }
  }
}

TEST_CASE("prefill attention of scores far apart neither overflows nor loses the largest") {
  const Problem p(300, 40, 3, 64, 12.0f);
  CHECK(Error(p.Run(40), p.Defined()) <
        5e-3);  // values are up to 50; scores up to 5,000 lose digits in f32
}

TEST_CASE("a row's attention has the same bits however the rows are cut") {
  const Problem p(270, 90, 3, 64, 1.0f);
  const std::vector<float> whole = p.Run(90);
  for (const size_t step : {1, 2, 7, 16, 64}) CHECK(p.Run(step) == whole);
}
