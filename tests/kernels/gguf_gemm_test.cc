#include "kernels/gguf_gemm.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/kernels/gguf_blocks.h"

using namespace sparkv::kernels;
using sparkv::testing::kAllTypes;
using sparkv::testing::RandomRow;

namespace {

using Gemm = absl::Status (*)(const GemmArgs&, size_t, size_t, float*);

struct Problem {
  GgmlType type;
  size_t columns, k, m, ldx, ldy;
  std::vector<uint8_t> w;
  std::vector<float> x;

  Problem(GgmlType type, size_t columns, size_t k, size_t m, std::mt19937* rng)
      : type(type), columns(columns), k(k), m(m), ldx(k + 3), ldy(columns + 5), x(m * ldx) {
    for (size_t r = 0; r < columns; ++r) {
      const std::vector<uint8_t> row = RandomRow(type, k, 0.02f, rng);
      w.insert(w.end(), row.begin(), row.end());
    }
    std::normal_distribution<float> normal(0.3f, 1.0f);
    for (float& v : x) v = normal(*rng);
  }

  // y, which held -7 before.
  std::vector<float> Multiply(Gemm gemm, size_t begin, size_t end, bool accumulate,
                              size_t rows) const {
    std::vector<float> y(rows * ldy, -7.0f), scratch(GemmScratchFloats(type, k));
    const GemmArgs args = {.type = type,
                           .w = w.data(),
                           .columns = columns,
                           .k = k,
                           .x = x.data(),
                           .ldx = ldx,
                           .m = rows,
                           .y = y.data(),
                           .ldy = ldy,
                           .accumulate = accumulate};
    REQUIRE_OK(gemm(args, begin, end, scratch.data()));
    return y;
  }

  void Check(Gemm gemm, size_t begin, size_t end, bool accumulate) const {
    const std::vector<float> y = Multiply(gemm, begin, end, accumulate, m);
    const GgmlTypeInfo& info = *FindGgmlType(static_cast<uint32_t>(type));
    INFO(std::string(info.name) << " " << m << " x " << columns << " x " << k << ", columns "
                                << begin << ".." << end);
    std::vector<float> row(k);
    for (size_t c = 0; c < ldy; ++c) {
      if (c < begin || c >= end) {
        for (size_t r = 0; r < m; ++r) REQUIRE(y[r * ldy + c] == -7.0f);
        continue;
      }
      REQUIRE_OK(DequantizeRowScalar(type, w.data() + c * RowBytes(info, k), row.data(), k));
      for (size_t r = 0; r < m; ++r) {
        double want = accumulate ? -7.0 : 0.0, magnitude = 7.0;
        for (size_t i = 0; i < k; ++i) {
          const double product = double{row[i]} * x[r * ldx + i];
          want += product;
          magnitude += std::fabs(product);
        }
        // A running f32 sum of a panel: below k roundings of 2^-24, in practice a few times the
        // square root of k.
        REQUIRE(std::fabs(y[r * ldy + c] - want) <= 4e-6 * magnitude);
      }
    }
  }
};

}  // namespace

TEST_CASE("a matrix product of every type equals a double-precision reference") {
  std::mt19937 rng(11);
  for (const GgmlType type : kAllTypes) {
    for (const size_t k : {size_t{256}, size_t{576}, size_t{1536}}) {
      if (k % FindGgmlType(static_cast<uint32_t>(type))->block_values != 0) continue;
      for (const Gemm gemm : {GgufGemm, GgufGemmScalar}) {
        const Problem p(type, 40, k, 13, &rng);
        p.Check(gemm, 0, 40, false);
        p.Check(gemm, 16, 37, true);
      }
    }
  }
}

TEST_CASE("products of every shape: edges of panels, tiles and blocks of rows") {
  std::mt19937 rng(12);
  for (const size_t m : {1, 5, 6, 7, 47, 48, 49, 101}) {
    for (const size_t columns : {1, 8, 15, 16, 17, 191, 192, 193, 209}) {
      const Problem p(GgmlType::kQ4_1, columns, 64, m, &rng);
      p.Check(GgufGemm, 0, columns, m % 2 == 0);
    }
  }
  for (const size_t k : {1, 3, 8, 17, 287, 288, 289, 600}) {
    const Problem p(GgmlType::kF32, 33, k, 7, &rng);
    p.Check(GgufGemm, 0, 33, false);
    p.Check(GgufGemmScalar, 0, 33, true);
  }
}

// An answer must not depend on how a prompt was cut or on the number of threads.
TEST_CASE("a row's product has the same bits in every batch and every split of the columns") {
  std::mt19937 rng(13);
  const Problem p(GgmlType::kQ5_0, 400, 608, 61, &rng);
  const std::vector<float> whole = p.Multiply(GgufGemm, 0, 400, false, 61);
  for (const size_t rows : {1, 6, 20, 60}) {
    const std::vector<float> some = p.Multiply(GgufGemm, 0, 400, false, rows);
    CHECK(std::equal(some.begin(), some.end(), whole.begin()));
  }
  for (size_t begin = 0; begin < 400; begin += 112) {
    const size_t end = std::min<size_t>(400, begin + 112);
    const std::vector<float> part = p.Multiply(GgufGemm, begin, end, false, 61);
    bool same = true;
    for (size_t r = 0; r < 61; ++r) {
      for (size_t c = begin; c < end; ++c)
        same = same && part[r * p.ldy + c] == whole[r * p.ldy + c];
    }
    CHECK(same);
  }
}

TEST_CASE("row strides keep rows apart in the L1 cache and are never shorter than the row") {
  for (size_t k = 1; k < 20000; k += k < 100 ? 1 : 64) {
    const size_t stride = GemmStride(k);
    REQUIRE(stride >= k);
    REQUIRE(stride < k + 1024);
    for (size_t i = 1; i < 6 && k > 256; ++i) {
      const size_t apart = i * stride * sizeof(float) % 4096;
      REQUIRE((apart >= 128 && apart <= 4096 - 128));
    }
  }
}

TEST_CASE("ragged rows and unknown types of a matrix are errors") {
  std::vector<uint8_t> w(4096);
  std::vector<float> x(4096), y(64, -7.0f), scratch(100000);
  const auto run = [&](GgmlType type, size_t k) {
    return GgufGemm({.type = type,
                     .w = w.data(),
                     .columns = 1,
                     .k = k,
                     .x = x.data(),
                     .ldx = k,
                     .m = 1,
                     .y = y.data(),
                     .ldy = 1},
                    0, 1, scratch.data());
  };
  CHECK(run(GgmlType::kQ4_1, 33).code() == absl::StatusCode::kInvalidArgument);
  CHECK(run(GgmlType::kQ6_K, 32).code() == absl::StatusCode::kInvalidArgument);
  CHECK(run(GgmlType::kF32, 0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(run(static_cast<GgmlType>(9), 32).code() == absl::StatusCode::kUnimplemented);
  CHECK(y == std::vector<float>(64, -7.0f));
}
