// Second moments of texts' K and V, layer by layer, and what the layer below and the token tell of
// them. Matrices are row-major; z(l) is a token's K before RoPE and its V.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/calibrate/kv_rows.h"
#include "common/calibrate/transform_fit.h"
#include "common/llm/model.h"

namespace sparkv {

// Add every text, then Finish, then ask.
class KvMoments {
 public:
  // predict: also what predictions are fitted from.
  KvMoments(const Model& model, const KvRows& rows, bool predict);

  absl::Status Add(const FidelityProbe& probe);
  void Finish();  // sums become centred

  double tokens() const { return tokens_; }
  const std::vector<double>& mean(uint32_t layer) const { return mean_[layer]; }  // [wide]
  const std::vector<double>& token_mean() const { return token_mean_; }           // [d_model]
  // Centred sums over the tokens of z(layer), and of normalised embeddings, with themselves.
  const Matrix64& gram(uint32_t layer) const { return gram_[layer]; }  // [wide][wide]
  const Matrix64& token_gram() const { return token_gram_; }           // [d_model][d_model]
  // Covariance of z(layer).
  Matrix64 Covariance(uint32_t layer) const;

  // Sums over tokens of features with themselves and with z(layer): what a fit needs.
  struct Normal {
    size_t features = 0;
    Matrix64 gram;   // [features][features], with the base's noise
    Matrix64 cross;  // [features][wide]
  };
  // What predicts z(layer): functions [rank][width] of z(layer - 1) and of the token's normalised
  // embedding, in this order; empty maps: all of it. base_noise: sum over the tokens of what errors
  // in z(layer - 1) add to its gram, [wide][wide], or empty.
  struct Inputs {
    std::span<const double> below_map;
    size_t below_rank = 0;
    std::span<const double> token_map;
    size_t token_rank = 0;
  };
  Normal NormalEquations(uint32_t layer, const Inputs& inputs,
                         std::span<const double> base_noise) const;
  // The prediction [features][wide] that fits best, with a ridge.
  absl::StatusOr<Matrix64> Fit(const Normal& normal) const;
  // Covariance of z(layer) minus a prediction [features][wide].
  Matrix64 Residual(uint32_t layer, const Normal& normal, std::span<const double> prediction) const;

 private:
  const Model& model_;
  const KvRows& rows_;
  const bool predict_;
  const size_t wide_;
  double tokens_ = 0;
  Matrix64 token_gram_;
  std::vector<double> token_mean_;
  std::vector<Matrix64> token_cross_;  // [layers] of [d_model][wide]
  std::vector<Matrix64> below_cross_;  // [layers] of z(l-1)^T z(l), [wide][wide]
  std::vector<Matrix64> gram_;
  std::vector<std::vector<double>> mean_;
};

}  // namespace sparkv
