#include "common/llm/sampler.h"

#include <cmath>
#include <map>

#include "tests/catch.h"
#include "tests/common/llm/engine_testing.h"

using namespace sparkv;
using sparkv::testing::Contains;

namespace {

Sampler Make(const SamplingOptions& options) {
  auto sampler = Sampler::Create(options);
  REQUIRE_OK(sampler);
  return *std::move(sampler);
}

std::map<int32_t, int> Histogram(const SamplingOptions& options, const std::vector<float>& logits,
                                 int n) {
  Sampler sampler = Make(options);
  std::map<int32_t, int> seen;
  for (int i = 0; i < n; ++i) ++seen[sampler.Sample(logits, {}).id];
  return seen;
}

}  // namespace

TEST_CASE("greedy takes the largest logit and the lowest id on ties") {
  Sampler sampler = Make({});
  REQUIRE(sampler.Sample(std::vector<float>{1, 5, 5, 2}, {}).id == 1);
  REQUIRE(sampler.Sample(std::vector<float>{NAN, -2, -1}, {}).id == 2);
}

TEST_CASE("logprobs are those of the unmodified softmax") {
  Sampler sampler = Make({.repetition_penalty = 2.0f});
  const std::vector<float> logits = {std::log(0.5f), std::log(0.25f), std::log(0.125f),
                                     std::log(0.125f)};
  const std::vector<int32_t> history = {1};
  const Sampled s = sampler.Sample(logits, history, 3);
  REQUIRE(s.id == 0);
  REQUIRE(s.logprob == Approx(std::log(0.5)));
  REQUIRE(s.top.size() == 3);
  REQUIRE(s.top[0].id == 0);
  REQUIRE(s.top[1].logprob == Approx(std::log(0.25)));
  REQUIRE(s.top[2].id == 2);
}

TEST_CASE("draws follow the distribution, and temperature sharpens it") {
  const std::vector<float> logits = {std::log(0.6f), std::log(0.3f), std::log(0.1f)};
  const auto plain = Histogram({.temperature = 1.0f, .seed = 1}, logits, 20000);
  REQUIRE(plain.at(0) == Approx(12000).margin(400));
  REQUIRE(plain.at(2) == Approx(2000).margin(250));
  // At temperature 1/2 probabilities are squared: .36 : .09 : .01.
  const auto cold = Histogram({.temperature = 0.5f, .seed = 2}, logits, 20000);
  REQUIRE(cold.at(0) == Approx(20000 * .36 / .46).margin(400));
  REQUIRE(cold.at(1) == Approx(20000 * .09 / .46).margin(400));
}

TEST_CASE("each filter drops exactly the tokens that it names") {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.5f), std::log(0.25f),
                                     std::log(0.15f)};
  const auto ids = [&](const SamplingOptions& o) {
    std::vector<int32_t> seen;
    for (const auto& [id, n] : Histogram(o, logits, 5000)) seen.push_back(id);
    return seen;
  };
  REQUIRE(ids({.temperature = 1, .top_k = 2}) == std::vector<int32_t>{1, 2});
  REQUIRE(ids({.temperature = 1, .top_k = 1}) == std::vector<int32_t>{1});
  REQUIRE(ids({.temperature = 1, .top_p = 0.74f}) == std::vector<int32_t>{1, 2});
  REQUIRE(ids({.temperature = 1, .top_p = 0.1f}) == std::vector<int32_t>{1});
  REQUIRE(ids({.temperature = 1, .top_p = 0.8f}) == std::vector<int32_t>{1, 2, 3});
  REQUIRE(ids({.temperature = 1, .min_p = 0.25f}) == std::vector<int32_t>{1, 2, 3});
  REQUIRE(ids({.temperature = 1, .min_p = 0.9f}) == std::vector<int32_t>{1});
  REQUIRE(ids({.temperature = 1}) == std::vector<int32_t>{0, 1, 2, 3});
}

TEST_CASE("repetition penalty lowers tokens of the history, whatever the sign of the logit") {
  Sampler sampler = Make({.repetition_penalty = 2.0f});
  const std::vector<float> logits = {3.0f, 2.0f, -1.0f};
  REQUIRE(sampler.Sample(logits, std::vector<int32_t>{0, 0, 0}).id == 1);  // once, not three times
  REQUIRE(sampler.Sample(std::vector<float>{-1.0f, -1.5f}, std::vector<int32_t>{0}).id == 1);
  REQUIRE(sampler.Sample(logits, std::vector<int32_t>{-1, 1000000}).id ==
          0);  // ids from elsewhere are ignored
}

TEST_CASE("the same seed gives the same tokens, and these are fixed for all machines") {
  std::vector<float> logits(64);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));
  const auto draw = [&](uint64_t seed) {
    Sampler sampler = Make({.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = seed});
    std::vector<int32_t> ids;
    for (int i = 0; i < 12; ++i) ids.push_back(sampler.Sample(logits, {}).id);
    return ids;
  };
  REQUIRE(draw(7) == draw(7));
  REQUIRE(draw(7) != draw(8));
  REQUIRE(draw(42) == std::vector<int32_t>{34, 7, 34, 8, 19, 14, 40, 2, 27, 46, 33, 21});
}

TEST_CASE("options out of range are refused by name") {
  const auto message = [](const SamplingOptions& o) {
    return std::string(Sampler::Create(o).status().message());
  };
  REQUIRE(Contains(message({.temperature = -0.1f}), "temperature is -0.1, allowed: 0..100"));
  REQUIRE(Contains(message({.temperature = NAN}), "temperature"));
  REQUIRE(Contains(message({.top_p = 0.0f}), "top_p"));
  REQUIRE(Contains(message({.top_p = 1.5f}), "top_p"));
  REQUIRE(Contains(message({.min_p = 1.0f}), "min_p"));
  REQUIRE(Contains(message({.repetition_penalty = 0.0f}), "repetition_penalty"));
  REQUIRE(Contains(message({.repetition_penalty = INFINITY}), "repetition_penalty"));
}

TEST_CASE("logits without a finite value give an id and no crash") {
  Sampler sampler = Make({.temperature = 1.0f});
  REQUIRE(sampler.Sample(std::vector<float>{NAN, NAN}, {}).id == 0);
  REQUIRE(sampler.Sample(std::vector<float>{}, {}).id == 0);
}
