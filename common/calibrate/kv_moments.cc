#include "common/calibrate/kv_moments.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/llm/linalg.h"
#include "common/llm/token_rows.h"
#include "kernels/row_ops.h"

namespace sparkv {
namespace {

constexpr double kRidge = 3e-3;  // of a Gram matrix's mean diagonal
constexpr double kMaxRidge = 10;

}  // namespace

KvMoments::KvMoments(const Model& model, const KvRows& rows, bool predict)
    : model_(model), rows_(rows), predict_(predict), wide_(rows.width()) {
  const size_t d = model.config().d_model;
  const uint32_t layers = model.config().layers;
  token_gram_.assign(predict ? d * d : 0, 0);
  token_mean_.assign(d, 0);
  token_cross_.assign(layers, Matrix64(predict ? d * wide_ : 0));
  below_cross_.assign(layers, Matrix64(predict ? wide_ * wide_ : 0));
  gram_.assign(layers, Matrix64(wide_ * wide_));
  mean_.assign(layers, std::vector<double>(wide_));
}

absl::Status KvMoments::Add(const FidelityProbe& probe) {
  const size_t d = model_.config().d_model, wide = wide_;
  const uint32_t layers = model_.config().layers;
  const std::vector<float> ones(d, 1.0f);
  const auto add_mean = [](const std::vector<float>& rows, size_t width,
                           std::vector<double>* mean) {
    for (size_t i = 0; i < rows.size(); ++i) (*mean)[i % width] += rows[i];
  };
  const auto tokens = probe.context().subspan(kCalibrationSinkTokens);
  const size_t n = tokens.size();
  std::vector<float> e(n * d);
  if (predict_) {
    RETURN_IF_ERROR(TokenRows(model_, tokens, e.data()));
    for (size_t i = 0; i < n; ++i) {
      kernels::RmsNorm(&e[i * d], ones.data(), 1e-5f, &e[i * d], d);
    }
    add_mean(e, d, &token_mean_);
    RETURN_IF_ERROR(linalg::AddGram(e.data(), d, e.data(), d, n, token_gram_.data()));
  }
  std::vector<float> below, z;
  for (uint32_t l = 0; l < layers; ++l) {
    below = std::move(z);
    z = rows_.Load(probe, l);
    add_mean(z, wide, &mean_[l]);
    RETURN_IF_ERROR(linalg::AddGram(z.data(), wide, z.data(), wide, n, gram_[l].data()));
    if (!predict_) continue;
    RETURN_IF_ERROR(linalg::AddGram(e.data(), d, z.data(), wide, n, token_cross_[l].data()));
    if (l > 0) {
      RETURN_IF_ERROR(
          linalg::AddGram(below.data(), wide, z.data(), wide, n, below_cross_[l].data()));
    }
  }
  tokens_ += static_cast<double>(n);
  return absl::OkStatus();
}

void KvMoments::Finish() {
  const double n = tokens_;
  for (double& m : token_mean_) m /= n;
  for (auto& mean : mean_) {
    for (double& m : mean) m /= n;
  }
  const auto centre = [n](const std::vector<double>& a, const std::vector<double>& b,
                          Matrix64* sum) {
    if (sum->empty()) return;
    for (size_t i = 0; i < a.size(); ++i) {
      for (size_t j = 0; j < b.size(); ++j) (*sum)[i * b.size() + j] -= n * a[i] * b[j];
    }
  };
  centre(token_mean_, token_mean_, &token_gram_);
  for (uint32_t l = 0; l < mean_.size(); ++l) {
    centre(token_mean_, mean_[l], &token_cross_[l]);
    centre(mean_[l], mean_[l], &gram_[l]);
    if (l > 0) centre(mean_[l - 1], mean_[l], &below_cross_[l]);
  }
}

Matrix64 KvMoments::Covariance(uint32_t layer) const {
  Matrix64 out = gram_[layer];
  for (double& v : out) v /= tokens_;
  return out;
}

KvMoments::Normal KvMoments::NormalEquations(uint32_t layer, const Inputs& inputs,
                                             std::span<const double> base_noise) const {
  const auto& [below_map, below_rank, token_map, token_rank] = inputs;
  const size_t d = model_.config().d_model, wide = wide_;
  const size_t nb = below_map.empty() ? wide : below_rank, nt = token_map.empty() ? d : token_rank;
  Matrix64 zz = gram_[layer - 1], zt = linalg::Transpose(token_cross_[layer - 1], d, wide);
  Matrix64 zy = below_cross_[layer], tt = token_gram_, ty = token_cross_[layer];
  for (size_t i = 0; i < base_noise.size(); ++i) zz[i] += base_noise[i];
  if (!below_map.empty()) {
    const Matrix64 transposed = linalg::Transpose(below_map, nb, wide);
    zz =
        linalg::Multiply(linalg::Multiply(below_map, zz, nb, wide, wide), transposed, nb, wide, nb);
    zt = linalg::Multiply(below_map, zt, nb, wide, d);
    zy = linalg::Multiply(below_map, zy, nb, wide, wide);
  }
  if (!token_map.empty()) {
    const Matrix64 transposed = linalg::Transpose(token_map, nt, d);
    tt = linalg::Multiply(linalg::Multiply(token_map, tt, nt, d, d), transposed, nt, d, nt);
    zt = linalg::Multiply(zt, transposed, nb, d, nt);
    ty = linalg::Multiply(token_map, ty, nt, d, wide);
  }
  Normal out;
  out.features = nb + nt;
  const size_t f = out.features;
  out.gram.resize(f * f);
  for (size_t i = 0; i < nb; ++i) {
    std::copy_n(&zz[i * nb], nb, &out.gram[i * f]);
    for (size_t j = 0; j < nt; ++j)
      out.gram[i * f + nb + j] = out.gram[(nb + j) * f + i] = zt[i * nt + j];
  }
  for (size_t i = 0; i < nt; ++i) std::copy_n(&tt[i * nt], nt, &out.gram[(nb + i) * f + nb]);
  out.cross = zy;
  out.cross.insert(out.cross.end(), ty.begin(), ty.end());
  return out;
}

absl::StatusOr<Matrix64> KvMoments::Fit(const Normal& normal) const {
  const size_t n = normal.features;
  const double mean = Trace(normal.gram, n) / static_cast<double>(n);
  absl::StatusOr<Matrix64> fit;
  // Few tokens leave a matrix that rounding makes indefinite: they can't bear more than a rough
  // fit.
  for (double ridge = kRidge; ridge < kMaxRidge; ridge *= 10) {
    Matrix64 gram = normal.gram;
    for (size_t i = 0; i < n; ++i) gram[i * n + i] += ridge * mean;
    fit = linalg::SolveSpd(gram, n, normal.cross, wide_);
    if (fit.ok()) return fit;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a prediction from ", n, " values cannot be fitted to ", tokens_,
                   " tokens; give more text: ", fit.status().message()));
}

Matrix64 KvMoments::Residual(uint32_t layer, const Normal& normal,
                             std::span<const double> prediction) const {
  const size_t f = normal.features, wide = wide_;
  const Matrix64 transposed = linalg::Transpose(prediction, f, wide);  // [wide][f]
  const Matrix64 explained = linalg::Multiply(transposed, normal.cross, wide, f, wide);
  const Matrix64 made = linalg::Multiply(linalg::Multiply(transposed, normal.gram, wide, f, f),
                                         prediction, wide, f, wide);
  Matrix64 out(wide * wide);
  for (size_t i = 0; i < wide; ++i) {
    for (size_t j = 0; j < wide; ++j) {
      out[i * wide + j] = (gram_[layer][i * wide + j] - explained[i * wide + j] -
                           explained[j * wide + i] + made[i * wide + j]) /
                          tokens_;
    }
  }
  return out;
}

}  // namespace sparkv
