#include "kernels/panel_attention.h"

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

// One KV head whose keys come in pieces, as pages of a growing cache do.
struct Problem {
  size_t begin, rows, group, dim;
  std::vector<float> q, k_rows, v_rows;
  Floats k, v;
  KvPanels panels;

  Problem(size_t begin, size_t rows, size_t group, size_t dim)
      : begin(begin),
        rows(rows),
        group(group),
        dim(dim),
        q(rows * group * dim),
        k_rows((begin + rows) * dim),
        v_rows(k_rows.size()) {
    panels.capacity = (begin + rows + 63) / 64 * 64 + 64;
    k = LineOf(KeyPanelFloats(panels.capacity, dim));
    v = LineOf(ValuePanelFloats(panels.capacity, dim));
    panels.k = k.get();
    panels.v = v.get();
    std::mt19937 rng(static_cast<uint32_t>(begin * 31 + rows * 7 + dim));
    std::normal_distribution<float> normal;
    for (std::vector<float>* x : {&q, &k_rows, &v_rows}) {
      for (float& value : *x) value = normal(rng);
    }
    // What was there before must not matter, not even NaN.
    std::fill_n(k.get(), KeyPanelFloats(panels.capacity, dim), NAN);
    std::fill_n(v.get(), ValuePanelFloats(panels.capacity, dim), NAN);
    for (size_t first = 0; first < begin + rows; first += 32) {
      const size_t count = std::min<size_t>(32, begin + rows - first);
      PackKeys(&k_rows[first * dim], count, dim, first, k.get());
      PackValues(&v_rows[first * dim], count, dim, first, panels.capacity, v.get());
    }
  }

  std::vector<float> Run(size_t step) const {
    std::vector<float> out(rows * group * dim, -7.0f);
    BlockAttentionArgs args;
    args.kv.kv_heads = 1;
    args.kv.dim = dim;
    args.q = q.data();
    args.q_head_stride = args.out_head_stride = dim;
    args.q_row_stride = args.out_row_stride = group * dim;
    args.heads = group;
    args.rows = rows;
    args.begin = begin;
    args.scale = 1.0f / std::sqrt(static_cast<float>(dim));
    args.out = out.data();
    std::vector<float> scratch(PanelAttentionScratchFloats(args, step));
    for (size_t head = 0; head < group; ++head) {
      for (size_t r = 0; r < rows; r += step)
        PanelAttention(args, panels, head, r, std::min(rows, r + step), scratch.data());
    }
    return out;
  }

  // The definition over the rows as they were, in double.
  std::vector<double> Defined() const {
    std::vector<double> out(rows * group * dim);
    for (size_t i = 0; i < rows * group; ++i) {
      std::vector<double> weight(begin + i / group + 1);
      double max = -INFINITY, sum = 0;
      for (size_t key = 0; key < weight.size(); ++key) {
        for (size_t d = 0; d < dim; ++d)
          weight[key] += double{q[i * dim + d]} * k_rows[key * dim + d];
        weight[key] *= 1.0f / std::sqrt(static_cast<float>(dim));
        max = std::max(max, weight[key]);
      }
      for (double& w : weight) sum += w = std::exp(w - max);
      for (size_t key = 0; key < weight.size(); ++key) {
        for (size_t d = 0; d < dim; ++d)
          out[i * dim + d] += weight[key] / sum * v_rows[key * dim + d];
      }
    }
    return out;
  }
};

}  // namespace

TEST_CASE("panel attention follows its definition at every edge of blocks and panels") {
  for (const size_t begin : {0, 1, 15, 16, 255, 257, 600}) {
    for (const size_t rows : {1, 5, 33, 130}) {
      for (const size_t group : {1, 3}) {
        for (const size_t dim : {16, 64, 40}) {
          const Problem p(begin, rows, group, dim);
          INFO(begin << " keys before " << rows << " rows, group " << group << ", dim " << dim);
          const std::vector<double> want = p.Defined();
          const std::vector<float> got = p.Run(rows);
          double error = 0;
          for (size_t i = 0; i < got.size(); ++i)
            error = std::max(error, std::isfinite(got[i]) ? std::fabs(got[i] - want[i]) : 9.0);
          REQUIRE(error < 2e-5);
        }
      }
    }
  }
}

TEST_CASE("a row's attention has the same bits however the rows are cut") {
  const Problem p(270, 90, 3, 64);
  const std::vector<float> whole = p.Run(90);
  for (const size_t step : {1, 2, 7, 16, 64}) CHECK(p.Run(step) == whole);
}
