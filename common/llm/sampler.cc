// Compiled without contraction of a * b + c (see CMakeLists.txt): the same logits must give the
// same token everywhere.
#include "common/llm/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace sparkv {
namespace {

// e^x for x <= 0 from IEEE operations only: libm's result differs in the last bit between machines.
double Exp(double x) {
  if (!(x > -700.0)) return 0.0;
  const double n = std::floor(x * 1.4426950408889634 + 0.5);
  const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
  double term = 1.0, sum = 1.0;
  for (int i = 1; i <= 14; ++i) {
    term = term * r / i;
    sum += term;
  }
  return std::ldexp(sum, static_cast<int>(n));
}

// Uniform in [0, 1) from the top 53 bits: std::uniform_real_distribution is not the same in every
// library.
double Uniform(std::mt19937_64* rng) { return static_cast<double>((*rng)() >> 11) * 0x1.0p-53; }

// NaN counts as the lowest value, so that one broken logit cannot disturb the order.
float Clean(float logit) { return std::isnan(logit) ? -INFINITY : logit; }

struct Candidate {
  int32_t id;
  float logit;
};

bool Before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Natural logarithm of the softmax denominator and the largest logit.
struct Normalizer {
  double largest;
  double log_sum;
  float Logprob(float logit) const {
    return static_cast<float>(static_cast<double>(Clean(logit)) - largest - log_sum);
  }
};

Normalizer Normalize(std::span<const float> logits) {
  float largest = -INFINITY;
  for (const float l : logits) largest = std::max(largest, Clean(l));
  if (!std::isfinite(largest)) return {0.0, 0.0};
  double sum = 0;
  for (const float l : logits) sum += Exp(static_cast<double>(Clean(l)) - largest);
  return {largest, std::log(sum)};
}

absl::Status Reject(const char* field, double got, const char* allowed) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", got, ", allowed: ", allowed));
}

void Penalize(std::span<const int32_t> history, float penalty, std::vector<float>* logits) {
  std::vector<int32_t> seen(history.begin(), history.end());
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  for (const int32_t id : seen) {
    if (id < 0 || static_cast<size_t>(id) >= logits->size()) continue;
    float& logit = (*logits)[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

// Draws from candidates sorted best first.
int32_t Draw(const SamplingOptions& options, std::vector<Candidate> candidates,
             std::mt19937_64* rng) {
  std::vector<double> weight(candidates.size());
  const double largest = candidates[0].logit;
  double total = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    weight[i] = Exp(candidates[i].logit - largest);
    total += weight[i];
  }
  size_t kept = candidates.size();
  if (options.top_p < 1.0f) {
    const double enough = static_cast<double>(options.top_p) * total;
    double mass = 0;
    for (size_t i = 0; i < kept; ++i) {
      mass += weight[i];
      if (mass >= enough) kept = i + 1;
    }
  }
  // The best candidate has weight 1, so min-p compares with that.
  while (kept > 1 && weight[kept - 1] < options.min_p) --kept;
  total = 0;
  for (size_t i = 0; i < kept; ++i) {
    weight[i] = Exp((candidates[i].logit - largest) / options.temperature);
    total += weight[i];
  }
  const double target = Uniform(rng) * total;
  double mass = 0;
  for (size_t i = 0; i < kept; ++i) {
    mass += weight[i];
    if (target < mass) return candidates[i].id;
  }
  return candidates[kept - 1].id;
}

}  // namespace

absl::Status SamplingOptions::Validate() const {
  if (!(temperature >= 0.0f && temperature <= 100.0f)) {
    return Reject("temperature", temperature, "0..100");
  }
  if (!(top_p > 0.0f && top_p <= 1.0f)) return Reject("top_p", top_p, "above 0, at most 1");
  if (!(min_p >= 0.0f && min_p < 1.0f)) return Reject("min_p", min_p, "0 to below 1");
  if (!(repetition_penalty > 0.0f && repetition_penalty <= 10.0f)) {
    return Reject("repetition_penalty", repetition_penalty, "above 0, at most 10");
  }
  return absl::OkStatus();
}

absl::StatusOr<Sampler> Sampler::Create(const SamplingOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  return Sampler(options);
}

Sampled Sampler::Sample(std::span<const float> logits, std::span<const int32_t> history,
                        uint32_t top) {
  Sampled result{0, 0.0f, {}};
  if (logits.empty()) return result;
  const Normalizer normalizer = Normalize(logits);

  std::vector<float> adjusted;
  std::span<const float> used = logits;
  if (options_.repetition_penalty != 1.0f) {
    adjusted.assign(logits.begin(), logits.end());
    Penalize(history, options_.repetition_penalty, &adjusted);
    used = adjusted;
  }
  const auto candidates_of = [](std::span<const float> values, size_t best) {
    std::vector<Candidate> all(values.size());
    for (size_t i = 0; i < values.size(); ++i) all[i] = {static_cast<int32_t>(i), Clean(values[i])};
    best = std::min(best, all.size());
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(best), all.end(),
                      Before);
    all.resize(best);
    return all;
  };
  if (options_.temperature == 0.0f) {
    size_t best = 0;
    for (size_t i = 1; i < used.size(); ++i) {
      if (Clean(used[i]) > Clean(used[best])) best = i;
    }
    result.id = static_cast<int32_t>(best);
  } else {
    std::vector<Candidate> candidates =
        candidates_of(used, options_.top_k == 0 ? used.size() : options_.top_k);
    result.id = std::isfinite(candidates[0].logit) ? Draw(options_, std::move(candidates), &rng_)
                                                   : candidates[0].id;
  }
  result.logprob = normalizer.Logprob(logits[static_cast<size_t>(result.id)]);
  if (top > 0) {
    for (const Candidate& c : candidates_of(logits, top)) {
      result.top.push_back({c.id, normalizer.Logprob(c.logit)});
    }
  }
  return result;
}

}  // namespace sparkv
