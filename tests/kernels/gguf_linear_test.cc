#include "kernels/gguf_linear.h"

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

using Linear = absl::Status (*)(GgmlType, const void*, size_t, size_t, size_t, const float*, size_t,
                                size_t, float*, size_t);

// Multiplies random weights and checks every output against a double-precision sum.
void Compare(Linear linear, GgmlType type, size_t k, size_t batch, std::mt19937* rng) {
  constexpr size_t kRows = 9, kBegin = 2, kEnd = 8;
  const GgmlTypeInfo& info = *FindGgmlType(static_cast<uint32_t>(type));
  const size_t row_bytes = RowBytes(info, k);
  std::vector<uint8_t> w;
  for (size_t r = 0; r < kRows; ++r) {
    const std::vector<uint8_t> row = RandomRow(type, k, r == 3 ? 1000.0f : 0.02f, rng);
    w.insert(w.end(), row.begin(), row.end());
  }
  const size_t x_stride = k + 5, y_stride = kRows + 3;
  std::normal_distribution<float> normal(0.3f, 1.0f);
  std::vector<float> x(batch * x_stride);
  for (float& v : x) v = normal(*rng);
  std::vector<float> y(batch * y_stride, -7.0f);
  REQUIRE_OK(
      linear(type, w.data(), k, kBegin, kEnd, x.data(), x_stride, batch, y.data(), y_stride));

  std::vector<float> row(k);
  for (size_t r = 0; r < y_stride; ++r) {
    if (r < kBegin || r >= kEnd) {
      for (size_t b = 0; b < batch; ++b) REQUIRE(y[b * y_stride + r] == -7.0f);
      continue;
    }
    REQUIRE_OK(DequantizeRowScalar(type, w.data() + r * row_bytes, row.data(), k));
    float largest = 0;
    for (const float v : row) largest = std::max(largest, std::fabs(v));
    for (size_t b = 0; b < batch; ++b) {
      double want = 0, sum = 0;
      for (size_t i = 0; i < k; ++i) {
        want += static_cast<double>(row[i]) * x[b * x_stride + i];
        sum += std::fabs(x[b * x_stride + i]);
      }
      // f32 sums of k/8 terms in a lane: well under k/8 roundings of 2^-24 each, relative to the
      // sum of magnitudes; the scale and the minimum of a block are summed apart, so magnitudes are
      // those of the largest weight. 1e-6 is 16 roundings.
      INFO(std::string(info.name) << " k " << k << " batch " << batch << " row " << r << " vector "
                                  << b);
      REQUIRE(std::fabs(y[b * y_stride + r] - want) <= 1e-6 * largest * sum);
    }
  }
}

}  // namespace

TEST_CASE("products of every type and batch equal a double-precision reference") {
  std::mt19937 rng(5);
  for (const GgmlType type : kAllTypes) {
    const uint32_t block = FindGgmlType(static_cast<uint32_t>(type))->block_values;
    for (size_t batch = 1; batch <= kMaxLinearBatch; ++batch) {
      for (const size_t k : {size_t{256}, size_t{768}, size_t{1536}, size_t{96}, size_t{576}}) {
        if (k % block != 0) continue;
        Compare(GgufLinearRows, type, k, batch, &rng);
        if (batch == 1) Compare(GgufLinearRowsScalar, type, k, batch, &rng);
      }
    }
  }
}

TEST_CASE("unquantized rows of any length multiply") {
  std::mt19937 rng(6);
  for (const GgmlType type : {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16}) {
    for (const size_t k : {1, 7, 8, 15, 33, 47, 100}) {
      for (const size_t batch : {1, 3, 8}) Compare(GgufLinearRows, type, k, batch, &rng);
    }
  }
}

// A vector's result must not depend on what shares its batch: greedy answers would change with
// load.
TEST_CASE("a vector's product is the same in every batch") {
  std::mt19937 rng(8);
  constexpr size_t kDim = 768, kRows = 5;
  for (const GgmlType type : kAllTypes) {
    const std::string name(FindGgmlType(static_cast<uint32_t>(type))->name);
    const std::vector<uint8_t> w = RandomRow(type, kDim * kRows, 0.02f, &rng);
    std::normal_distribution<float> normal;
    std::vector<float> x(kDim * kMaxLinearBatch);
    for (float& v : x) v = normal(rng);
    std::vector<float> alone(kRows);
    REQUIRE_OK(
        GgufLinearRows(type, w.data(), kDim, 0, kRows, x.data(), kDim, 1, alone.data(), kRows));
    for (size_t batch = 2; batch <= kMaxLinearBatch; ++batch) {
      std::vector<float> y(kRows * batch);
      REQUIRE_OK(
          GgufLinearRows(type, w.data(), kDim, 0, kRows, x.data(), kDim, batch, y.data(), kRows));
      for (size_t r = 0; r < kRows; ++r) {
        INFO(name << " batch " << batch << " row " << r);
        REQUIRE(y[r] == alone[r]);
      }
    }
  }
}

TEST_CASE("ragged rows, batches out of range and unknown types are errors") {
  const std::vector<uint8_t> w(4096);
  std::vector<float> x(4096), y(64, -7.0f);
  const auto run = [&](GgmlType type, size_t k, size_t batch) {
    return GgufLinearRows(type, w.data(), k, 0, 1, x.data(), k, batch, y.data(), 1);
  };
  CHECK(run(GgmlType::kQ4_1, 33, 1).code() == absl::StatusCode::kInvalidArgument);
  CHECK(run(GgmlType::kQ6_K, 32, 1).code() == absl::StatusCode::kInvalidArgument);
  CHECK(run(GgmlType::kQ4_1, 32, 0).code() == absl::StatusCode::kInvalidArgument);
  CHECK(run(GgmlType::kQ4_1, 32, kMaxLinearBatch + 1).code() == absl::StatusCode::kInvalidArgument);
  CHECK(run(static_cast<GgmlType>(9), 32, 1).code() == absl::StatusCode::kUnimplemented);
  CHECK(y == std::vector<float>(64, -7.0f));
}
