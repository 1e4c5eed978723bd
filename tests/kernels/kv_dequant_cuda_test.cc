// The dequantizer of codec `generic` on CUDA against its formula, bit for bit, in the emulator and
// on a GPU.
#include "kernels/kv_dequant_cuda.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/block_attention_args.h"
#include "kernels/half.h"
#include "tests/catch.h"
#include "tests/kernels/cuda_target.h"

namespace sparkv::kernels {
namespace {

using ::sparkv::testing::CudaTarget;
using Targets = std::vector<std::unique_ptr<CudaTarget>>;

struct Pair {
  float lo, step;
};

// In the codec's order; numbers that are far apart, so that some values are clamped.
std::vector<uint8_t> Params(const std::vector<Pair>& pairs) {
  std::vector<uint8_t> bytes(4 * pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    const uint16_t lo = FloatToHalf(pairs[i].lo), step = FloatToHalf(pairs[i].step);
    bytes[i] = static_cast<uint8_t>(lo);
    bytes[pairs.size() + i] = static_cast<uint8_t>(lo >> 8);
    bytes[2 * pairs.size() + i] = static_cast<uint8_t>(step);
    bytes[3 * pairs.size() + i] = static_cast<uint8_t>(step >> 8);
  }
  return bytes;
}

void Dequantize(const Targets& targets) {
  struct Shape {
    uint32_t tokens, dim;
    size_t first_token;
    float scale, offset;
  };
  for (const Shape& s : {Shape{1, 64, 0, 16, 7.5f}, Shape{37, 80, 50, 8, 3.5f},
                         Shape{130, 64, 63, 1, 0}, Shape{33, 33, 64, 1, 0}}) {
    std::mt19937 rng(s.tokens);
    std::normal_distribution<float> normal;
    constexpr size_t kGap = 5;
    const size_t pages = (s.first_token + s.tokens + kKeyBlock - 1) / kKeyBlock;
    const size_t head = kKeyBlock * s.dim + kGap;
    const uint32_t levels = static_cast<uint32_t>(256 / s.scale);
    std::vector<std::vector<uint8_t>> codes(2, std::vector<uint8_t>(size_t{s.tokens} * s.dim));
    std::vector<std::vector<Pair>> pairs{std::vector<Pair>(s.dim), std::vector<Pair>(s.tokens)};
    for (auto& all : codes) {
      for (uint8_t& code : all) code = static_cast<uint8_t>(rng() % levels);
    }
    for (auto& all : pairs) {
      for (Pair& p : all) {
        const float large = rng() % 8 == 0 ? 30000.0f : 1.0f;
        p = {HalfToFloat(FloatToHalf(std::clamp(normal(rng), -2.0f, 2.0f) * large)),
             HalfToFloat(FloatToHalf(std::abs(normal(rng)) * large * 0.01f))};
      }
    }
    for (const auto& target : targets) {
      CAPTURE(target->name(), s.tokens, s.dim, s.first_token);
      const std::vector<uint16_t> empty(2 * head, 0x1234);
      std::vector<uint16_t*> at;
      for (size_t p = 0; p < pages; ++p) {
        at.push_back(target->PutArray("page", std::span<const uint16_t>(empty)));
      }
      uint16_t* const* const table = target->PutArray("pages", std::span<uint16_t* const>(at));
      // Two heads of the same pages, and one whose parameters are not finite.
      std::vector<KvDequantCudaJob> jobs(3);
      for (size_t j = 0; j < 2; ++j) {
        const std::vector<uint8_t> params = Params(pairs[j]);
        jobs[j].codes = target->Put("codes", codes[j], false);
        jobs[j].params = target->Put("params", params, false);
        jobs[j].pages = table;
        jobs[j].head_offset = j * head;
        jobs[j].first_token = s.first_token;
        jobs[j].per_channel = j == 0;
      }
      std::vector<uint16_t*> elsewhere;
      for (size_t p = 0; p < pages; ++p) {
        elsewhere.push_back(target->PutArray("other page", std::span<const uint16_t>(empty)));
      }
      std::vector<uint8_t> bad = Params(pairs[1]);
      bad[3 * pairs[1].size()] = 0x80;  // a negative step
      jobs[2] = jobs[1];
      jobs[2].params = target->Put("params", bad, false);
      jobs[2].pages = target->PutArray("other pages", std::span<uint16_t* const>(elsewhere));
      KvDequantCudaArgs a;
      a.jobs = target->PutArray("jobs", std::span<const KvDequantCudaJob>(jobs));
      a.count = 3;
      a.tokens = s.tokens;
      a.dim = s.dim;
      a.code_scale = s.scale;
      a.code_offset = s.offset;
      const std::vector<uint8_t> unknown(3, 7);
      a.ok = target->Put("ok", unknown, false);
      REQUIRE_OK(target->Run([&]() -> absl::Status {
        if (!target->emulated()) return KvDequantizeCuda(a, target->stream());
        const char* const error = emulated::LaunchKvDequantize(a, target->stream());
        return error == nullptr ? absl::OkStatus() : absl::InternalError(error);
      }));
      const uint8_t* const ok = target->Result(a.ok);
      CHECK(ok[0] == 1);
      CHECK(ok[1] == 1);
      CHECK(ok[2] == 0);
      for (size_t p = 0; p < pages; ++p) {
        std::vector<uint16_t> want = empty, got(empty.size());
        for (size_t slot = 0; slot < kKeyBlock; ++slot) {
          const size_t token = p * kKeyBlock + slot, t = token - s.first_token;
          if (token < s.first_token || t >= s.tokens) continue;
          for (size_t j = 0; j < 2; ++j) {
            for (size_t d = 0; d < s.dim; ++d) {
              const Pair pair = pairs[j][j == 0 ? d : t];
              const float c = s.scale * static_cast<float>(codes[j][d * s.tokens + t]) + s.offset;
              const float delta = pair.step * c, value = pair.lo + delta;
              want[j * head + slot * s.dim + d] =
                  FloatToHalf(std::min(std::max(value, -65504.0f), 65504.0f));
            }
          }
        }
        std::memcpy(got.data(), target->Result(at[p]), 2 * got.size());
        CAPTURE(p);
        CHECK(got == want);
      }
      target->Clear();
    }
  }
}

}  // namespace

TEST_CASE("codes of the generic codec become f16 values in pages on CUDA") {
  Dequantize(testing::EmulatedTargets());
}

TEST_CASE("dequantizing on a GPU") {
  std::string why_not;
  auto gpu = testing::GpuTarget(&why_not);
  if (gpu == nullptr) SKIP(why_not);
  Targets targets;
  targets.push_back(std::move(gpu));
  Dequantize(targets);
}

TEST_CASE("the CUDA call of the dequantizer names the argument that is wrong") {
  KvDequantCudaJob job;
  uint8_t ok = 0;
  const KvDequantCudaArgs good{.jobs = &job, .count = 1, .tokens = 0, .dim = 64, .ok = &ok};
  const auto names = [&](const char* what, auto change) {
    KvDequantCudaArgs a = good;
    change(a);
    const absl::Status status = KvDequantizeCuda(a, nullptr);
    CAPTURE(status.ToString(), what);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find(what) != std::string::npos);
  };
  names("jobs", [](auto& a) { a.jobs = nullptr; });
  names("ok", [](auto& a) { a.ok = nullptr; });
  names("dim", [](auto& a) { a.dim = 0; });
  names("count", [](auto& a) { a.count = 65536; });
  names("tokens", [](auto& a) { a.tokens = (1u << 24) + 1; });
}

}  // namespace sparkv::kernels
