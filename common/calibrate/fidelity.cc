#include "common/calibrate/fidelity.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace sparkv {

absl::StatusOr<FidelityProbe> FidelityProbe::Create(Decoder* decoder,
                                                    std::shared_ptr<KvPagePool> pool,
                                                    std::span<const int32_t> tokens,
                                                    uint32_t context) {
  if (context < kPassage * 4 || tokens.size() < context + kFollowing) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", tokens.size(), " tokens for a context of ", context,
                     "; needs at least ", kPassage * 4, " and ", kFollowing, " tokens behind it"));
  }
  FidelityProbe probe;
  probe.decoder_ = decoder;
  probe.context_ = context;
  probe.tokens_.assign(tokens.begin(), tokens.begin() + context + kFollowing);
  const auto passage = tokens.begin() + context / 3;
  probe.tokens_.insert(probe.tokens_.end(), passage, passage + kPassage);
  probe.exact_ = std::make_unique<KvCache>(std::move(pool));
  RETURN_IF_ERROR(decoder->Prefill(tokens.first(context), probe.exact_.get(), nullptr));
  ASSIGN_OR_RETURN(probe.log_p_, probe.LogProbabilities(probe.exact_.get()));
  return probe;
}

absl::StatusOr<std::vector<float>> FidelityProbe::LogProbabilities(KvCache* cache) const {
  const ModelConfig& c = decoder_->model().config();
  std::vector<float> hidden(size_t{kTokens} * c.d_model);
  RETURN_IF_ERROR(decoder_->Embed(std::span(tokens_).subspan(context_, kTokens), hidden.data()));
  RETURN_IF_ERROR(cache->Extend(context_ + kTokens));
  for (uint32_t l = 0; l < c.layers; ++l) {
    RETURN_IF_ERROR(decoder_->Project(l, hidden.data(), context_, kTokens, cache));
    RETURN_IF_ERROR(decoder_->Attend(l, hidden.data(), context_, kTokens, *cache));
  }
  cache->Truncate(context_);
  std::vector<float> logits(size_t{kTokens} * c.vocabulary);
  RETURN_IF_ERROR(decoder_->Logits(hidden.data(), kTokens, logits.data()));
  for (uint32_t t = 0; t < kTokens; ++t) {
    float* row = &logits[size_t{t} * c.vocabulary];
    const float most = *std::max_element(row, row + c.vocabulary);
    double sum = 0;
    for (uint32_t i = 0; i < c.vocabulary; ++i) sum += std::exp(row[i] - most);
    const auto shift = static_cast<float>(most + std::log(sum));
    for (uint32_t i = 0; i < c.vocabulary; ++i) row[i] -= shift;
  }
  return logits;
}

absl::StatusOr<Fidelity> FidelityProbe::Measure(KvCache* candidate) const {
  if (candidate->tokens() != context_) {
    return absl::InvalidArgumentError(
        absl::StrCat("a KV cache of ", candidate->tokens(), " tokens, wanted ", context_));
  }
  ASSIGN_OR_RETURN(const std::vector<float> log_q, LogProbabilities(candidate));
  const uint32_t vocabulary = decoder_->model().config().vocabulary;
  Fidelity out;
  uint32_t copies = 0, same = 0;
  for (uint32_t t = 0; t < kTokens; ++t) {
    const float* p = &log_p_[size_t{t} * vocabulary];
    const float* q = &log_q[size_t{t} * vocabulary];
    double kl = 0;
    for (uint32_t i = 0; i < vocabulary; ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
    if (t < kFollowing) {
      out.kl += kl / kFollowing;
      if (t + 1 < kFollowing) {
        const auto next = static_cast<size_t>(tokens_[context_ + t + 1]);
        out.delta_nll += (p[next] - q[next]) / (kFollowing - 1);
      }
    } else if (t >= kFollowing + kPassageSkip) {
      out.copy_kl += kl;
      ++copies;
    } else {
      continue;
    }
    same +=
        std::max_element(p, p + vocabulary) - p == std::max_element(q, q + vocabulary) - q ? 1 : 0;
  }
  out.copy_kl /= copies;
  out.top1 = static_cast<double>(same) / (kFollowing + copies);
  return out;
}

}  // namespace sparkv
