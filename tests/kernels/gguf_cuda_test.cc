// Quantized weights on CUDA against the scalar twins, in the emulator and on a GPU.
#include "kernels/gguf_cuda.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/gguf_linear.h"
#include "kernels/half.h"
#include "tests/catch.h"
#include "tests/kernels/cuda_target.h"
#include "tests/kernels/gguf_blocks.h"

namespace sparkv::kernels {
namespace {

using ::sparkv::testing::CudaTarget;
using Targets = std::vector<std::unique_ptr<CudaTarget>>;

constexpr GgmlType kTypes[] = {GgmlType::kQ4_0, GgmlType::kQ4_1, GgmlType::kQ8_0, GgmlType::kQ4_K,
                               GgmlType::kQ6_K};

// Rows begin at a multiple of 2, not more.
const uint8_t* PutWeights(CudaTarget& target, const std::vector<uint8_t>& bytes) {
  std::vector<uint8_t> padded(2);
  padded.insert(padded.end(), bytes.begin(), bytes.end());
  if (padded.size() % 4 == 0) padded.insert(padded.end(), 2, 0);
  return target.PutArray("weights", std::span<const uint8_t>(padded)) + 2;
}

absl::Status Said(const char* error) {
  return error == nullptr ? absl::OkStatus() : absl::InternalError(error);
}

void Expand(const Targets& targets) {
  for (const GgmlType type : kTypes) {
    std::mt19937 rng(11);
    const GgmlTypeInfo& info = *FindGgmlType(static_cast<uint32_t>(type));
    const size_t n = size_t{9} * info.block_values;
    const std::vector<uint8_t> row = testing::RandomRow(type, n, 0.02f, &rng);
    std::vector<float> want(n);
    REQUIRE_OK(DequantizeRowScalar(type, row.data(), want.data(), n));
    for (const auto& target : targets) {
      CAPTURE(target->name(), info.name);
      const uint8_t* const w = PutWeights(*target, row);
      const std::vector<uint16_t> none(n);
      uint16_t* const out = target->PutArray("out", std::span<const uint16_t>(none));
      REQUIRE_OK(target->Run([&] {
        return target->emulated()
                   ? Said(emulated::LaunchGgufToHalf(static_cast<CudaWeightType>(type), w, n, out,
                                                     target->stream()))
                   : GgufToHalfCuda(type, w, n, out, target->stream());
      }));
      std::vector<uint16_t> got(n);
      std::memcpy(got.data(), target->Result(out), 2 * n);
      for (size_t i = 0; i < n; ++i) {
        // A fused multiply-add may round the f32 differently, hence one step of f16.
        const float limit = std::fabs(want[i]) * 0x1p-10f + 0x1p-24f;
        CAPTURE(i, want[i], HalfToFloat(got[i]));
        REQUIRE(std::fabs(HalfToFloat(got[i]) - want[i]) <= limit);
      }
      target->Clear();
    }
  }
}

void Multiply(const Targets& targets) {
  for (const GgmlType type : kTypes) {
    const GgmlTypeInfo& info = *FindGgmlType(static_cast<uint32_t>(type));
    for (const size_t blocks : {1, 5}) {
      for (const size_t batch : {1, 3, 8}) {
        std::mt19937 rng(12);
        std::normal_distribution<float> normal;
        const size_t k = blocks * info.block_values, rows = 7, x_stride = k + 3,
                     y_stride = rows + 2;
        const std::vector<uint8_t> w = testing::RandomRow(type, rows * k, 0.02f, &rng);
        std::vector<float> x(batch * x_stride), weights(k);
        for (float& value : x) value = normal(rng);
        for (const auto& target : targets) {
          CAPTURE(target->name(), info.name, blocks, batch);
          std::vector<float> y(batch * y_stride, -3.5f), want = y;
          REQUIRE_OK(GgufLinearRowsScalar(type, w.data(), k, 0, rows, x.data(), x_stride, batch,
                                          want.data(), y_stride));
          GgufLinearCudaArgs a;
          a.type = static_cast<CudaWeightType>(type);
          a.w = PutWeights(*target, w);
          a.rows = rows;
          a.k = k;
          a.x = target->PutArray("x", std::span<const float>(x));
          a.x_stride = x_stride;
          a.batch = batch;
          a.y = target->PutArray("y", std::span<const float>(y));
          a.y_stride = y_stride;
          REQUIRE_OK(target->Run([&] {
            return target->emulated() ? Said(emulated::LaunchGgufLinear(a, target->stream()))
                                      : GgufLinearCuda(type, a, target->stream());
          }));
          std::memcpy(y.data(), target->Result(a.y), y.size() * sizeof(float));
          for (size_t i = 0; i < y.size(); ++i) {
            // f32 sums are off by the size of their terms.
            double terms = 0;
            if (i % y_stride < rows) {
              REQUIRE_OK(DequantizeRowScalar(type, w.data() + i % y_stride * RowBytes(info, k),
                                             weights.data(), k));
              for (size_t j = 0; j < k; ++j) {
                terms += std::fabs(double{weights[j]} * x[i / y_stride * x_stride + j]);
              }
            }
            CAPTURE(i, y[i], want[i], terms);
            REQUIRE(std::fabs(y[i] - want[i]) <= 2e-6 * terms);
          }
          target->Clear();
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("weights on CUDA expand and multiply as on the CPU") {
  const Targets targets = testing::EmulatedTargets();
  Expand(targets);
  Multiply(targets);
}

TEST_CASE("weights on a GPU") {
  std::string why_not;
  auto gpu = testing::GpuTarget(&why_not);
  if (gpu == nullptr) SKIP(why_not);
  Targets targets;
  targets.push_back(std::move(gpu));
  Expand(targets);
  Multiply(targets);
}

TEST_CASE("CUDA calls of weights name the argument that is wrong") {
  alignas(2) uint8_t w[36] = {};
  uint16_t out = 0;
  float x = 0;
  const auto names = [](const absl::Status& status, const char* what) {
    CAPTURE(status.ToString(), what);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find(what) != std::string::npos);
  };
  names(GgufToHalfCuda(GgmlType::kQ8_0, w, 33, &out, nullptr), "values is 33");
  names(GgufToHalfCuda(GgmlType::kQ8_0, w + 1, 32, &out, nullptr), "odd address");
  names(GgufToHalfCuda(GgmlType::kQ8_0, nullptr, 32, &out, nullptr), "w is null");
  names(GgufToHalfCuda(GgmlType::kQ8_0, w, 32, nullptr, nullptr), "out is null");
  CHECK(GgufToHalfCuda(GgmlType::kQ3_K, w, 256, &out, nullptr).code() ==
        absl::StatusCode::kUnimplemented);
  GgufLinearCudaArgs a{.w = w, .rows = 1, .k = 32, .x = &x, .y = &x};
  a.batch = 9;
  names(GgufLinearCuda(GgmlType::kQ8_0, a, nullptr), "batch is 9");
  a.batch = 2;
  names(GgufLinearCuda(GgmlType::kQ8_0, a, nullptr), "x_stride");
  a.batch = 1;
  a.y = nullptr;
  names(GgufLinearCuda(GgmlType::kQ8_0, a, nullptr), "y is null");
}

}  // namespace sparkv::kernels
