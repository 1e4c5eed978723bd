// The CUDA row operations against the scalar twins, in the emulator and on a GPU.
#include "kernels/row_ops_cuda.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/block_attention_args.h"
#include "kernels/half.h"
#include "kernels/row_ops.h"
#include "tests/catch.h"
#include "tests/kernels/cuda_target.h"

namespace sparkv::kernels {
namespace {

using ::sparkv::testing::CudaTarget;
using Targets = std::vector<std::unique_ptr<CudaTarget>>;

std::vector<float> Normal(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& x : values) x = normal(rng);
  return values;
}

template <typename T>
T* Put(CudaTarget& target, const char* what, const std::vector<T>& values) {
  return target.PutArray(what, std::span<const T>(values));
}

template <typename T>
std::vector<T> Get(const CudaTarget& target, const T* from, size_t n) {
  std::vector<T> values(n);
  std::memcpy(values.data(), target.Result(from), n * sizeof(T));
  return values;
}

absl::Status Said(const char* error) {
  return error == nullptr ? absl::OkStatus() : absl::InternalError(error);
}

void CheckClose(const std::vector<float>& got, const std::vector<float>& want, double relative) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i, got[i], want[i]);
    REQUIRE(std::fabs(got[i] - want[i]) <= relative * std::max(1.0f, std::fabs(want[i])));
  }
}

std::vector<uint16_t> Rounded(const std::vector<float>& values) {
  std::vector<uint16_t> halves(values.size());
  FloatToHalfScalar(values.data(), halves.data(), values.size());
  return halves;
}

void Norm(const Targets& targets) {
  for (const auto& target : targets) {
    for (const size_t n : {1, 31, 255, 576, 1000}) {
      for (const bool with_residual : {false, true}) {
        CAPTURE(target->name(), n, with_residual);
        constexpr size_t kRows = 3;
        const std::vector<float> x = Normal(kRows * n, 1), weight = Normal(n, 2);
        std::vector<float> sum = with_residual ? Normal(kRows * n, 3) : x;
        RmsNormCudaArgs a;
        a.x = Put(*target, "x", x);
        if (with_residual) {
          a.residual = Put(*target, "residual", sum);
          for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
        }
        a.weight = Put(*target, "weight", weight);
        a.epsilon = 1e-5f;
        a.y = Put(*target, "y", std::vector<float>(kRows * n));
        a.y_half = Put(*target, "y_half", std::vector<uint16_t>(kRows * n));
        a.rows = kRows;
        a.n = n;
        REQUIRE_OK(target->Run([&] {
          return target->emulated() ? Said(emulated::LaunchRmsNorm(a, target->stream()))
                                    : RmsNormCuda(a, target->stream());
        }));
        std::vector<float> want(kRows * n);
        for (size_t r = 0; r < kRows; ++r) {
          RmsNormScalar(&sum[r * n], weight.data(), a.epsilon, &want[r * n], n);
        }
        const std::vector<float> y = Get(*target, a.y, want.size());
        CheckClose(y, want, 1e-5);
        CHECK(Get(*target, a.y_half, want.size()) == Rounded(y));
        if (with_residual) CHECK(Get(*target, a.residual, sum.size()) == sum);
        target->Clear();
      }
    }
  }
}

void Silu(const Targets& targets) {
  for (const auto& target : targets) {
    for (const size_t n : {1, 256, 777}) {
      CAPTURE(target->name(), n);
      std::vector<float> gate = Normal(n, 4), want(n);
      const std::vector<float> up = Normal(n, 5);
      gate[0] = 200;  // exp overflows
      gate[n - 1] = -200;
      SiluMulScalar(gate.data(), up.data(), want.data(), n);
      SiluMulCudaArgs a;
      float* const in_place = Put(*target, "gate", gate);
      a.gate = a.out = in_place;
      a.up = Put(*target, "up", up);
      a.out_half = Put(*target, "out_half", std::vector<uint16_t>(n));
      a.n = n;
      REQUIRE_OK(target->Run([&] {
        return target->emulated() ? Said(emulated::LaunchSiluMul(a, target->stream()))
                                  : SiluMulCuda(a, target->stream());
      }));
      const std::vector<float> out = Get(*target, a.out, n);
      CheckClose(out, want, 1e-5);
      CHECK(Get(*target, a.out_half, n) == Rounded(out));
      target->Clear();
    }
  }
}

void Rotate(const Targets& targets) {
  for (const auto& target : targets) {
    for (const bool interleaved : {false, true}) {
      for (const size_t pairs : {20, 32, 64}) {
        CAPTURE(target->name(), interleaved, pairs);
        constexpr size_t kRows = 4, kHeads = 3, kBegin = 5;
        const size_t dim = 2 * pairs + 8;  // the last values of a head stay as they are
        std::vector<float> x = Normal(kRows * kHeads * dim, 6);
        const std::vector<float> cos = Normal((kBegin + kRows) * pairs, 7),
                                 sin = Normal((kBegin + kRows) * pairs, 8);
        RopeCudaArgs a;
        a.x = Put(*target, "x", x);
        a.cos = Put(*target, "cos", cos);
        a.sin = Put(*target, "sin", sin);
        a.row_stride = kHeads * dim;
        a.head_stride = dim;
        a.rows = kRows;
        a.heads = kHeads;
        a.pairs = pairs;
        a.begin = kBegin;
        a.interleaved = interleaved;
        REQUIRE_OK(target->Run([&] {
          return target->emulated() ? Said(emulated::LaunchRope(a, target->stream()))
                                    : RopeCuda(a, target->stream());
        }));
        for (size_t r = 0; r < kRows; ++r) {
          for (size_t h = 0; h < kHeads; ++h) {
            float* const head = &x[(r * kHeads + h) * dim];
            const float* const c = &cos[(kBegin + r) * pairs];
            const float* const s = &sin[(kBegin + r) * pairs];
            if (interleaved) {
              RopeInterleavedScalar(head, c, s, pairs);
            } else {
              RopeSplitHalf(head, c, s, pairs);
            }
          }
        }
        CheckClose(Get(*target, a.x, x.size()), x, 1e-6);
        target->Clear();
      }
    }
  }
}

void Store(const Targets& targets) {
  for (const auto& target : targets) {
    CAPTURE(target->name());
    constexpr size_t kRows = 70, kHeads = 2, kDim = 80, kBegin = 61, kPages = 3;
    constexpr size_t kHeadStride = kKeyBlock * kDim + 3;
    const std::vector<float> k = Normal(kRows * kHeads * kDim, 9),
                             v = Normal(kRows * kHeads * kDim, 10);
    const std::vector<uint16_t> empty(kHeads * kHeadStride, 0x1234);
    std::vector<uint16_t*> k_pages, v_pages;
    for (size_t p = 0; p < kPages; ++p) {
      k_pages.push_back(Put(*target, "key page", empty));
      v_pages.push_back(Put(*target, "value page", empty));
    }
    StoreKvCudaArgs a;
    a.k = Put(*target, "k", k);
    a.v = Put(*target, "v", v);
    a.row_stride = kHeads * kDim;
    a.head_stride = kDim;
    a.rows = kRows;
    a.kv_heads = kHeads;
    a.dim = kDim;
    a.k_pages = Put(*target, "key pages", k_pages);
    a.v_pages = Put(*target, "value pages", v_pages);
    a.page_head_stride = kHeadStride;
    a.begin = kBegin;
    REQUIRE_OK(target->Run([&] {
      return target->emulated() ? Said(emulated::LaunchStoreKv(a, target->stream()))
                                : StoreKvCuda(a, target->stream());
    }));
    for (const auto& [pages, rows] : {std::pair(&k_pages, &k), std::pair(&v_pages, &v)}) {
      for (size_t p = 0; p < kPages; ++p) {
        std::vector<uint16_t> want = empty;
        for (size_t t = 0; t < kKeyBlock; ++t) {
          const size_t token = p * kKeyBlock + t;
          if (token < kBegin || token >= kBegin + kRows) continue;
          for (size_t h = 0; h < kHeads; ++h) {
            FloatToHalfScalar(&(*rows)[((token - kBegin) * kHeads + h) * kDim],
                              &want[h * kHeadStride + t * kDim], kDim);
          }
        }
        CAPTURE(p);
        CHECK(Get(*target, (*pages)[p], want.size()) == want);
      }
    }
    target->Clear();
  }
}

}  // namespace

TEST_CASE("row operations on CUDA are those of the CPU") {
  const Targets targets = testing::EmulatedTargets();
  Norm(targets);
  Silu(targets);
  Rotate(targets);
  Store(targets);
}

TEST_CASE("row operations on a GPU") {
  std::string why_not;
  auto gpu = testing::GpuTarget(&why_not);
  if (gpu == nullptr) SKIP(why_not);
  Targets targets;
  targets.push_back(std::move(gpu));
  Norm(targets);
  Silu(targets);
  Rotate(targets);
  Store(targets);
}

TEST_CASE("CUDA calls of row operations name the argument that is wrong") {
  float x = 0;
  const auto names = [](const absl::Status& status, const char* what) {
    CAPTURE(status.ToString(), what);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find(what) != std::string::npos);
  };
  names(RmsNormCuda({.x = &x, .weight = &x, .rows = 1, .n = 1}, nullptr), "y and y_half");
  names(RmsNormCuda({.x = &x, .y = &x, .rows = 1, .n = 1}, nullptr), "weight");
  names(RmsNormCuda({.x = &x, .weight = &x, .y = &x, .rows = 1, .n = 0}, nullptr), "a row of 0");
  names(SiluMulCuda({.gate = &x, .out = &x, .n = 1}, nullptr), "up");
  names(SiluMulCuda({.gate = &x, .up = &x, .n = 1}, nullptr), "out");
  names(RopeCuda({.x = &x, .rows = 1, .heads = 1, .pairs = 1, .sin = &x}, nullptr), "cos");
  names(RopeCuda({.x = &x, .rows = 2, .heads = 1, .pairs = 1, .cos = &x, .sin = &x}, nullptr),
        "row_stride");
  names(StoreKvCuda({.rows = 1, .kv_heads = 1, .dim = 64, .page_head_stride = 64}, nullptr),
        "page_head_stride");
#ifndef SPARKV_HAS_CUDA
  CHECK(SiluMulCuda({}, nullptr).code() == absl::StatusCode::kUnimplemented);
#endif
}

}  // namespace sparkv::kernels
