#include "common/calibrate/calibrator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/thread_pool.h"
#include "common/calibrate/table_training.h"
#include "common/codec/column_decode.h"
#include "common/codec/dec_aatc.h"
#include "common/codec/enc_aatc.h"
#include "common/codec/enc_column_copy.h"
#include "common/codec/enc_profile.h"
#include "common/codec/enc_transform.h"
#include "common/codec/rans_common.h"
#include "common/codec/residual_common.h"
#include "common/llm/linalg.h"
#include "common/llm/rope_table.h"
#include "common/llm/token_rows.h"
#include "common/llm/torch_math.h"
#include "common/llm/weights.h"
#include "kernels/gguf_dequant.h"
#include "kernels/row_ops.h"

namespace sparkv {
namespace {

using Matrix64 = std::vector<double>;

constexpr uint32_t kSinkTokens = 4;    // left out: they travel as they are
constexpr uint32_t kMaxGroup = 256;    // values transformed together at most
constexpr double kWeightFloor = 1e-2;  // of a weight's mean eigenvalue
constexpr double kRidge = 3e-3;        // of a Gram matrix's mean diagonal
// The prediction is fitted for a base that is this much noisier than the first plane's
// quantization, so that errors die out from layer to layer, also where the base was computed and
// has none.
constexpr double kBaseNoise = 1.5;
constexpr double kProbeNoise = 0.02;       // of a block's variance, to measure its sensitivity
constexpr uint32_t kSensitivityTexts = 3;  // that each block is probed on
constexpr uint32_t kQueryRows = 1500;      // sampled of each text
constexpr uint32_t kQueryTokens = 1024;

// a [n][n] += factor * b b^T of b [n][m].
void AddOuter(std::span<const double> b, size_t n, size_t m, double factor, Matrix64* a) {
  const Matrix64 product = linalg::Multiply(b, linalg::Transpose(b, n, m), n, m, n);
  for (size_t i = 0; i < product.size(); ++i) (*a)[i] += factor * product[i];
}

double Trace(std::span<const double> a, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += a[i * n + i];
  return sum;
}

struct Roots {
  Matrix64 root, inverse;  // A^1/2, A^-1/2
};
absl::StatusOr<Roots> SquareRoots(std::span<const double> a, size_t n, double floor) {
  ASSIGN_OR_RETURN(const linalg::Eigen e, linalg::SymmetricEigen(a, n));
  const double add = floor * Trace(a, n) / static_cast<double>(n);
  Matrix64 left(n * n), right(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      const double value = std::sqrt(std::max(e.values[j], 0.0) + add + 1e-30);
      left[i * n + j] = e.vectors[i * n + j] * value;
      right[i * n + j] = e.vectors[i * n + j] / value;
    }
  }
  const Matrix64 transposed = linalg::Transpose(e.vectors, n, n);
  return Roots{linalg::Multiply(left, transposed, n, n, n),
               linalg::Multiply(right, transposed, n, n, n)};
}

// The `rank` linear functions of an input with covariance `sigma` that lose least of what `gram` =
// P^T W P weighs, [rank][n]: principal components of the weighted prediction, scaled to unit
// variance.
absl::StatusOr<Matrix64> BestInputs(std::span<const double> sigma, std::span<const double> gram,
                                    size_t n, size_t rank) {
  ASSIGN_OR_RETURN(const Roots roots, SquareRoots(sigma, n, 1e-6));
  const Matrix64 weighted =
      linalg::Multiply(linalg::Multiply(roots.root, gram, n, n, n), roots.root, n, n, n);
  ASSIGN_OR_RETURN(const linalg::Eigen e, linalg::SymmetricEigen(weighted, n));
  Matrix64 top(rank * n);
  for (size_t r = 0; r < rank; ++r) {
    for (size_t i = 0; i < n; ++i) top[r * n + i] = e.vectors[i * n + (n - 1 - r)];
  }
  return linalg::Multiply(top, roots.inverse, rank, n, n);
}

std::vector<float> ToFloat(std::span<const double> v) { return {v.begin(), v.end()}; }

// The values of rows that went through their stored type.
absl::StatusOr<Matrix64> Restore(kernels::GgmlType type, const std::string& rows, size_t n) {
  std::vector<float> dense(n);
  RETURN_IF_ERROR(kernels::DequantizeRow(type, rows.data(), dense.data(), n));
  return Matrix64(dense.begin(), dense.end());
}

class Calibrator {
 public:
  Calibrator(std::shared_ptr<const Model> model, const CalibrationOptions& options,
             const CancelToken& cancel,
             const std::function<void(double, const std::string&)>& progress)
      : model_(std::move(model)),
        config_(model_->config()),
        options_(options),
        cancel_(cancel),
        progress_(progress),
        threads_(options.threads > 0
                     ? options.threads
                     : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))),
        decoder_(model_, {.threads = threads_}),
        pool_(std::max(1, threads_ - 1)),
        rope_(config_.rope),
        row_(config_.kv_heads * config_.head_dim),
        wide_(2 * row_) {}

  absl::StatusOr<Calibration> Run(const std::vector<std::vector<int32_t>>& texts);

 private:
  absl::Status Say(double done, const std::string& what) {
    RETURN_IF_ERROR(cancel_.Check());
    if (progress_) progress_(done, what);
    return absl::OkStatus();
  }
  absl::Status ChooseShape();
  absl::Status Prefill(const std::vector<std::vector<int32_t>>& texts);
  absl::Status QueryMoments();
  absl::Status ValueWeights();
  absl::Status Moments();
  // K before RoPE and V of a layer, tokens from kSinkTokens on, [n][wide].
  std::vector<float> LoadZ(const FidelityProbe& probe, uint32_t layer) const;
  void Unrotate(uint32_t position, float* k) const;
  // Weight of errors of one transform group, [group][group], sensitivity included.
  Matrix64 Weight(uint32_t layer, uint32_t group) const;
  struct Transform {
    Matrix64 forward, inverse;  // [group][group]
  };
  absl::StatusOr<Transform> MakeTransform(uint32_t layer, uint32_t group,
                                          std::span<const double> residual) const;
  // Sums over tokens of features with themselves and with z(layer): what a fit needs.
  struct Normal {
    size_t features = 0;
    Matrix64 gram;   // [features][features], with the base's noise
    Matrix64 cross;  // [features][wide]
  };
  Normal NormalEquations(uint32_t layer, std::span<const double> token_map, size_t token_rank,
                         std::span<const double> below_map, size_t below_rank, double step) const;
  // Covariance of z(layer) minus prediction [features][wide].
  Matrix64 Residual(uint32_t layer, const Normal& normal, std::span<const double> prediction) const;
  absl::Status Sensitivities();
  absl::Status Fit();
  absl::Status FinishLayer(uint32_t layer, std::span<const double> token_map,
                           std::span<const double> below_map);
  absl::Status TrainOnTexts();
  // Sums over all tokens have unit size; their means shall have, so that all inputs are of one
  // size.
  std::vector<float> UnitVariance(const Matrix64& map) const {
    std::vector<float> out = ToFloat(map);
    for (float& x : out) x *= std::sqrt(static_cast<float>(tokens_));
    return out;
  }
  absl::StatusOr<std::unique_ptr<ColumnEncoder>> MakeEncoder() const;
  // The columns of text `p`.
  absl::Status ForColumns(size_t p,
                          const std::function<absl::Status(const ColumnInput&)>& fn) const;
  absl::StatusOr<std::vector<LevelReport>> MeasureLevels(int levels);
  TokenEmbedding Embedding() const {
    return {config_.d_model, [model = model_](std::span<const int32_t> tokens, float* out) {
              return TokenRows(*model, tokens, out);
            }};
  }

  const std::shared_ptr<const Model> model_;
  const ModelConfig& config_;
  const CalibrationOptions options_;
  const CancelToken cancel_;
  const std::function<void(double, const std::string&)>& progress_;
  const int threads_;
  Decoder decoder_;
  ThreadPool pool_;
  RopeTable rope_;
  const uint32_t row_, wide_;
  std::shared_ptr<KvPagePool> pages_;
  std::vector<FidelityProbe> probes_;
  size_t tokens_ = 0;  // counted into the moments

  std::vector<std::vector<Matrix64>> weight_;  // [layers][kv_heads * 2] of [head_dim][head_dim]
  Matrix64 token_gram_;                        // centred sums: [d][d]
  std::vector<double> token_mean_;
  std::vector<Matrix64> token_cross_;  // [layers] of [d][wide]
  std::vector<Matrix64> below_cross_;  // [layers] of z(l-1)^T z(l), [wide][wide]
  std::vector<Matrix64> gram_;         // [layers] of z(l)^T z(l)
  std::vector<std::vector<double>> mean_;
  std::vector<std::array<double, 2>> sensitivity_;  // [layers] of K, V
  std::vector<std::vector<Transform>> transforms_;  // [layers][2 * groups]
  ProfileContent content_;
  CalibrationReport report_;
};

void Calibrator::Unrotate(uint32_t position, float* k) const {
  const size_t pairs = rope_.frequency().size();
  std::vector<float> back(pairs);
  for (size_t i = 0; i < pairs; ++i) back[i] = -rope_.Sin(position)[i];
  for (uint32_t h = 0; h < config_.kv_heads; ++h, k += config_.head_dim) {
    if (config_.rope.kind == RopeKind::kInterleaved) {
      kernels::RopeInterleaved(k, rope_.Cos(position), back.data(), pairs);
    } else {
      kernels::RopeSplitHalf(k, rope_.Cos(position), back.data(), pairs);
    }
  }
}

absl::Status Calibrator::ChooseShape() {
  ProfileShape& s = content_.shape;
  const CodecInfo& info = options_.predict ? AatcPredInfo() : AatcInfo();
  s.codec_id = info.id;
  s.codec_version = info.version;
  s.planes = static_cast<uint32_t>(info.planes);
  s.geometry = config_.Geometry(KvDtype::kF16);
  s.d_model = config_.d_model;
  for (uint32_t heads = 1; heads <= config_.kv_heads; ++heads) {
    const uint32_t group = heads * config_.head_dim;
    if (config_.kv_heads % heads == 0 && group % 32 == 0 && (group <= kMaxGroup || s.group == 0) &&
        group <= kMaxTransformGroup) {
      s.group = group;
    }
  }
  if (s.group == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a model of ", config_.kv_heads, " KV heads of ", config_.head_dim,
        " values has no group of heads whose values are a multiple of 32; use codec generic"));
  }
  if (options_.predict) {
    if (config_.d_model % 32 != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "d_model ", config_.d_model, " is no multiple of 32; calibrate codec aatc instead"));
    }
    s.rank_token = std::min({options_.rank_token, config_.d_model, kMaxPredictionRank}) / 32 * 32;
    s.rank_below = std::min({options_.rank_below, wide_, kMaxPredictionRank}) / 32 * 32;
    s.predict_type = kernels::GgmlType::kQ4_0;
  }
  s.rope =
      config_.rope.kind == RopeKind::kInterleaved ? RopePairs::kInterleaved : RopePairs::kSplitHalf;
  s.frequency = rope_.frequency();
  s.model_fingerprint = model_->fingerprint();
  s.step = 1;
  report_.codec = std::string(info.name);
  return s.Validate();
}

absl::Status Calibrator::Prefill(const std::vector<std::vector<int32_t>>& texts) {
  uint64_t tokens = 0;
  for (const auto& text : texts) tokens += std::min<uint64_t>(text.size(), options_.context);
  const KvGeometry g = config_.Geometry(KvDtype::kF16);
  ASSIGN_OR_RETURN(pages_,
                   KvPagePool::Create(g, g.token_bytes() * (tokens + options_.context +
                                                            (texts.size() + 2) * 5 * kPageTokens)));
  for (size_t i = 0; i < texts.size(); ++i) {
    RETURN_IF_ERROR(
        Say(0.1 * static_cast<double>(i) / static_cast<double>(texts.size()), "prefill"));
    const auto context = static_cast<uint32_t>(std::min<size_t>(
        options_.context,
        texts[i].size() - std::min<size_t>(texts[i].size(), FidelityProbe::kFollowing)));
    absl::StatusOr<FidelityProbe> probe =
        FidelityProbe::Create(&decoder_, pages_, texts[i], context);
    if (!probe.ok()) {
      return absl::Status(probe.status().code(),
                          absl::StrCat("text ", i + 1, ": ", probe.status().message()));
    }
    probes_.push_back(*std::move(probe));
    tokens_ += context - kSinkTokens;
    report_.tokens += context;
  }
  report_.texts = static_cast<uint32_t>(texts.size());
  rope_.Reserve(options_.context);
  return absl::OkStatus();
}

// An error in a key changes a logit by its product with a query, rotated by the distance of the
// two.
absl::Status Calibrator::QueryMoments() {
  const uint32_t dim = config_.head_dim, heads = config_.heads, group = heads / config_.kv_heads;
  weight_.assign(config_.layers,
                 std::vector<Matrix64>(2 * config_.kv_heads, Matrix64(size_t{dim} * dim)));
  std::mt19937 random(1);
  for (size_t p = 0; p < probes_.size(); ++p) {
    RETURN_IF_ERROR(
        Say(0.1 + 0.1 * static_cast<double>(p) / static_cast<double>(probes_.size()), "queries"));
    const auto tokens = probes_[p].context();
    const auto n = static_cast<uint32_t>(std::min<size_t>(tokens.size(), kQueryTokens));
    std::vector<float> hidden(size_t{n} * config_.d_model), q(size_t{n} * heads * dim);
    RETURN_IF_ERROR(decoder_.Embed(tokens.first(n), hidden.data()));
    std::vector<uint32_t> rows(kQueryRows), distances(kQueryRows);
    for (uint32_t i = 0; i < kQueryRows; ++i) {
      rows[i] = std::min(n - 1, 64 + static_cast<uint32_t>(random() % n));
      distances[i] = static_cast<uint32_t>(random() % (rows[i] + 1));
    }
    for (uint32_t l = 0; l < config_.layers; ++l) {
      RETURN_IF_ERROR(decoder_.Queries(l, hidden.data(), n, q.data()));
      std::vector<float> sample(size_t{kQueryRows} * group * dim);
      for (uint32_t h = 0; h < config_.kv_heads; ++h) {
        for (uint32_t i = 0; i < kQueryRows; ++i) {
          for (uint32_t j = 0; j < group; ++j) {
            float* row = &sample[(size_t{i} * group + j) * dim];
            std::copy_n(&q[(size_t{rows[i]} * heads + h * group + j) * dim], dim, row);
            rope_.Apply(distances[i], row);
          }
        }
        RETURN_IF_ERROR(linalg::AddGram(sample.data(), dim, sample.data(), dim,
                                        size_t{kQueryRows} * group, weight_[l][h].data()));
      }
      if (l + 1 < config_.layers) {
        RETURN_IF_ERROR(decoder_.Attend(l, hidden.data(), 0, n, probes_[p].exact()));
      }
    }
  }
  return absl::OkStatus();
}

// An error in a value changes the output by its product with W_O.
absl::Status Calibrator::ValueWeights() {
  const uint32_t dim = config_.head_dim, group = config_.heads / config_.kv_heads;
  const size_t width = size_t{config_.heads} * dim;
  std::vector<float> dense(size_t{config_.d_model} * width), head(size_t{config_.d_model} * dim);
  for (uint32_t l = 0; l < config_.layers; ++l) {
    const auto& o = model_->weights().layers[l].o;
    for (uint32_t r = 0; r < o.rows; ++r) {
      RETURN_IF_ERROR(kernels::DequantizeRow(o.type, o.Row(r), &dense[r * width], width));
    }
    for (uint32_t h = 0; h < config_.kv_heads; ++h) {
      for (uint32_t j = 0; j < group; ++j) {
        for (uint32_t r = 0; r < o.rows; ++r) {
          std::copy_n(&dense[r * width + (size_t{h} * group + j) * dim], dim,
                      &head[size_t{r} * dim]);
        }
        RETURN_IF_ERROR(linalg::AddGram(head.data(), dim, head.data(), dim, o.rows,
                                        weight_[l][config_.kv_heads + h].data()));
      }
    }
    // Each side's weight is 1 on average; how K and V compare is measured.
    for (uint32_t side = 0; side < 2; ++side) {
      double sum = 0;
      for (uint32_t h = 0; h < config_.kv_heads; ++h) {
        sum += Trace(weight_[l][side * config_.kv_heads + h], dim);
      }
      for (uint32_t h = 0; h < config_.kv_heads; ++h) {
        for (double& w : weight_[l][side * config_.kv_heads + h]) w *= row_ / sum;
      }
    }
  }
  return absl::OkStatus();
}

std::vector<float> Calibrator::LoadZ(const FidelityProbe& probe, uint32_t layer) const {
  const auto n = static_cast<uint32_t>(probe.context().size()) - kSinkTokens;
  const uint32_t dim = config_.head_dim;
  std::vector<float> heads(size_t{n} * row_), z(size_t{n} * wide_);
  for (const KvSide side : {KvSide::kK, KvSide::kV}) {
    probe.exact().ReadRows(layer, side, kSinkTokens, n, heads.data(), size_t{n} * dim);
    const size_t offset = side == KvSide::kK ? 0 : row_;
    for (uint32_t h = 0; h < config_.kv_heads; ++h) {
      for (uint32_t i = 0; i < n; ++i) {
        std::copy_n(&heads[(size_t{h} * n + i) * dim], dim,
                    &z[i * wide_ + offset + size_t{h} * dim]);
      }
    }
  }
  ParallelFor(const_cast<ThreadPool*>(&pool_), n, 64, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      Unrotate(kSinkTokens + static_cast<uint32_t>(i), &z[i * wide_]);
    }
  });
  return z;
}

absl::Status Calibrator::Moments() {
  const size_t d = config_.d_model, wide = wide_;
  const uint32_t layers = config_.layers;
  token_gram_.assign(options_.predict ? d * d : 0, 0);
  token_mean_.assign(d, 0);
  token_cross_.assign(layers, Matrix64(options_.predict ? d * wide : 0));
  below_cross_.assign(layers, Matrix64(options_.predict ? wide * wide : 0));
  gram_.assign(layers, Matrix64(wide * wide));
  mean_.assign(layers, std::vector<double>(wide));
  const std::vector<float> ones(d, 1.0f);
  const auto add_mean = [](const std::vector<float>& rows, size_t width,
                           std::vector<double>* mean) {
    for (size_t i = 0; i < rows.size(); ++i) (*mean)[i % width] += rows[i];
  };
  for (size_t p = 0; p < probes_.size(); ++p) {
    RETURN_IF_ERROR(
        Say(0.2 + 0.1 * static_cast<double>(p) / static_cast<double>(probes_.size()), "moments"));
    const auto tokens = probes_[p].context().subspan(kSinkTokens);
    const size_t n = tokens.size();
    std::vector<float> e(n * d);
    if (options_.predict) {
      RETURN_IF_ERROR(TokenRows(*model_, tokens, e.data()));
      for (size_t i = 0; i < n; ++i) {
        kernels::RmsNorm(&e[i * d], ones.data(), 1e-5f, &e[i * d], d);
      }
      add_mean(e, d, &token_mean_);
      RETURN_IF_ERROR(linalg::AddGram(e.data(), d, e.data(), d, n, token_gram_.data()));
    }
    std::vector<float> below, z;
    for (uint32_t l = 0; l < layers; ++l) {
      below = std::move(z);
      z = LoadZ(probes_[p], l);
      add_mean(z, wide, &mean_[l]);
      RETURN_IF_ERROR(linalg::AddGram(z.data(), wide, z.data(), wide, n, gram_[l].data()));
      if (!options_.predict) continue;
      RETURN_IF_ERROR(linalg::AddGram(e.data(), d, z.data(), wide, n, token_cross_[l].data()));
      if (l > 0) {
        RETURN_IF_ERROR(
            linalg::AddGram(below.data(), wide, z.data(), wide, n, below_cross_[l].data()));
      }
    }
  }
  const auto n = static_cast<double>(tokens_);
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
  for (uint32_t l = 0; l < layers; ++l) {
    centre(token_mean_, mean_[l], &token_cross_[l]);
    centre(mean_[l], mean_[l], &gram_[l]);
    if (l > 0) centre(mean_[l - 1], mean_[l], &below_cross_[l]);
  }
  return absl::OkStatus();
}

Matrix64 Calibrator::Weight(uint32_t layer, uint32_t group) const {
  const uint32_t n = content_.shape.group, dim = config_.head_dim;
  const uint32_t side = group / content_.shape.groups();
  const uint32_t first = group % content_.shape.groups() * (n / dim);
  Matrix64 w(size_t{n} * n);
  for (uint32_t h = 0; h < n / dim; ++h) {
    const Matrix64& block = weight_[layer][side * config_.kv_heads + first + h];
    for (uint32_t i = 0; i < dim; ++i) {
      for (uint32_t j = 0; j < dim; ++j) {
        w[(size_t{h} * dim + i) * n + h * dim + j] =
            block[size_t{i} * dim + j] * sensitivity_[layer][side];
      }
    }
  }
  return w;
}

absl::StatusOr<Calibrator::Transform> Calibrator::MakeTransform(
    uint32_t layer, uint32_t group, std::span<const double> residual) const {
  const uint32_t n = content_.shape.group;
  Matrix64 s(size_t{n} * n);
  for (uint32_t i = 0; i < n; ++i) {
    std::copy_n(&residual[(size_t{group} * n + i) * wide_ + size_t{group} * n], n,
                &s[size_t{i} * n]);
  }
  ASSIGN_OR_RETURN(const Roots w, SquareRoots(Weight(layer, group), n, kWeightFloor));
  ASSIGN_OR_RETURN(const linalg::Eigen e,
                   linalg::SymmetricEigen(
                       linalg::Multiply(linalg::Multiply(w.root, s, n, n, n), w.root, n, n, n), n));
  Matrix64 u(size_t{n} * n);  // columns by falling variance
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t j = 0; j < n; ++j) u[size_t{i} * n + j] = e.vectors[size_t{i} * n + n - 1 - j];
  }
  return Transform{linalg::Multiply(linalg::Transpose(u, n, n), w.root, n, n, n),
                   linalg::Multiply(w.inverse, u, n, n, n)};
}

// Features: z(layer - 1), or `below_map` [below_rank][wide] of it; then e, or `token_map` [rank][d]
// of it.
Calibrator::Normal Calibrator::NormalEquations(uint32_t layer, std::span<const double> token_map,
                                               size_t token_rank, std::span<const double> below_map,
                                               size_t below_rank, double step) const {
  const size_t d = config_.d_model, wide = wide_;
  const size_t nb = below_map.empty() ? wide : below_rank, nt = token_map.empty() ? d : token_rank;
  Matrix64 zz = gram_[layer - 1], zt = linalg::Transpose(token_cross_[layer - 1], d, wide);
  Matrix64 zy = below_cross_[layer], tt = token_gram_, ty = token_cross_[layer];
  if (step > 0 && layer > 1) {
    const uint32_t n = content_.shape.group;
    const double variance = step * step / 12 * static_cast<double>(tokens_);
    for (uint32_t g = 0; g < transforms_[layer - 1].size(); ++g) {
      Matrix64 noise(size_t{n} * n);
      AddOuter(transforms_[layer - 1][g].inverse, n, n, variance, &noise);
      for (uint32_t i = 0; i < n; ++i) {
        for (uint32_t j = 0; j < n; ++j) {
          zz[(size_t{g} * n + i) * wide + size_t{g} * n + j] += noise[size_t{i} * n + j];
        }
      }
    }
  }
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

Matrix64 Calibrator::Residual(uint32_t layer, const Normal& normal,
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
                          static_cast<double>(tokens_);
    }
  }
  return out;
}

namespace {
// normal's gram with a ridge: (gram + ridge) X = cross.
absl::StatusOr<Matrix64> Solve(Matrix64 gram, const Matrix64& cross, size_t features, size_t wide) {
  const double add = kRidge * Trace(gram, features) / static_cast<double>(features);
  for (size_t i = 0; i < features; ++i) gram[i * features + i] += add;
  return linalg::SolveSpd(gram, features, cross, wide);
}
}  // namespace

// Adds noise as quantization makes it to one layer's K or V at a time, and measures what it does.
absl::Status Calibrator::Sensitivities() {
  const uint32_t n = content_.shape.group, groups = content_.shape.groups();
  sensitivity_.assign(config_.layers, {1.0, 1.0});
  transforms_.assign(config_.layers, {});
  const uint32_t texts =
      std::min<uint32_t>(kSensitivityTexts, static_cast<uint32_t>(probes_.size()));
  for (uint32_t l = 1; l < config_.layers; ++l) {
    Matrix64 residual = gram_[l];
    for (double& v : residual) v /= static_cast<double>(tokens_);
    if (options_.predict) {
      const Normal normal = NormalEquations(l, {}, 0, {}, 0, 0);
      ASSIGN_OR_RETURN(const Matrix64 p, Solve(normal.gram, normal.cross, normal.features, wide_));
      residual = Residual(l, normal, p);
    }
    for (uint32_t g = 0; g < 2 * groups; ++g) {
      ASSIGN_OR_RETURN(Transform t, MakeTransform(l, g, residual));
      transforms_[l].push_back(std::move(t));
    }
  }
  std::vector<std::array<double, 2>> sums(config_.layers);
  std::mt19937 random(2);
  for (size_t p = 0; p < probes_.size(); ++p) {
    const FidelityProbe& probe = probes_[p];
    const auto tokens = static_cast<uint32_t>(probe.context().size());
    const uint32_t rows = tokens - kSinkTokens;
    KvCache noisy(pages_);
    RETURN_IF_ERROR(noisy.Extend(tokens));
    std::vector<uint16_t> k(size_t{tokens} * row_), v(k.size());
    for (uint32_t l = 0; l < config_.layers; ++l) {
      RETURN_IF_ERROR(probe.exact().ExportBlock(l, 0, tokens, k.data(), v.data()));
      noisy.ImportBlock(l, 0, tokens, k.data(), v.data());
    }
    for (uint32_t l = 1; l < config_.layers; ++l) {
      RETURN_IF_ERROR(
          Say(0.3 + 0.45 * (static_cast<double>(p) + static_cast<double>(l) / config_.layers) /
                        static_cast<double>(probes_.size()),
              "sensitivity"));
      const std::vector<float> z = LoadZ(probe, l);
      for (uint32_t side = 0; side < 2; ++side) {
        // Each block is probed on a few texts, in turn.
        if ((p + 2 * probes_.size() - (2 * l + side) % probes_.size()) % probes_.size() >= texts)
          continue;
        double variance = 0, spread = 0;
        for (uint32_t i = 0; i < row_; ++i) {
          const size_t j = size_t{side} * row_ + i;
          variance += gram_[l][j * wide_ + j] / static_cast<double>(tokens_);
        }
        for (uint32_t g = side * groups; g < (side + 1) * groups; ++g) {
          for (const double b : transforms_[l][g].inverse) spread += b * b;
        }
        const double step = std::sqrt(12 * kProbeNoise * variance / spread);
        std::vector<float> rows_k(z.size()), unit(n);
        std::copy(z.begin(), z.end(), rows_k.begin());
        for (uint32_t i = 0; i < rows; ++i) {
          for (uint32_t g = side * groups; g < (side + 1) * groups; ++g) {
            for (float& x : unit) x = static_cast<float>((random() >> 8) * 0x1p-24 - 0.5);
            float* to = &rows_k[size_t{i} * wide_ + size_t{g} * n];
            const Matrix64& inverse = transforms_[l][g].inverse;
            for (uint32_t a = 0; a < n; ++a) {
              double sum = 0;
              for (uint32_t b = 0; b < n; ++b) sum += inverse[size_t{a} * n + b] * unit[b];
              to[a] += static_cast<float>(step * sum);
            }
          }
          float* key = &rows_k[size_t{i} * wide_];
          for (uint32_t h = 0; h < config_.kv_heads; ++h) {
            rope_.Apply(kSinkTokens + i, key + size_t{h} * config_.head_dim);
          }
        }
        noisy.WriteRows(l, kSinkTokens, rows, rows_k.data(), rows_k.data() + row_, wide_);
        ASSIGN_OR_RETURN(const Fidelity f, probe.Measure(&noisy));
        sums[l][side] += (f.kl + 0.5 * f.copy_kl) / (step * step) / texts;
        RETURN_IF_ERROR(probe.exact().ExportBlock(l, 0, tokens, k.data(), v.data()));
        noisy.ImportBlock(l, 0, tokens, k.data(), v.data());
      }
    }
  }
  for (uint32_t l = 1; l < config_.layers; ++l) {
    // A block that does not matter at all would get no bits in any other text either.
    for (double& s : sums[l]) s = std::max(s, 1e-9);
    sensitivity_[l] = sums[l];
    report_.layers.push_back({});
    report_.layers.back().sensitivity_k = sums[l][0];
    report_.layers.back().sensitivity_v = sums[l][1];
  }
  report_.layers.insert(report_.layers.begin(), LayerReport{});
  return absl::OkStatus();
}

// Prediction and transforms of one layer, in the types in which they are stored.
absl::Status Calibrator::FinishLayer(uint32_t layer, std::span<const double> token_map,
                                     std::span<const double> below_map) {
  const ProfileShape& s = content_.shape;
  ProfileContent::Layer& out = content_.layers[layer - 1];
  Matrix64 residual = gram_[layer];
  for (double& v : residual) v /= static_cast<double>(tokens_);
  std::vector<double> offset = mean_[layer];
  if (s.predicts()) {
    const Normal normal = NormalEquations(layer, token_map, s.rank_token, below_map, s.rank_below,
                                          kBaseNoise * s.step);
    ASSIGN_OR_RETURN(const Matrix64 fitted, Solve(normal.gram, normal.cross, s.rank(), wide_));
    out.predict = QuantizeRows(s.predict_type, ToFloat(linalg::Transpose(fitted, s.rank(), wide_)));
    ASSIGN_OR_RETURN(const Matrix64 stored,
                     Restore(s.predict_type, out.predict, size_t{wide_} * s.rank()));
    residual = Residual(layer, normal, linalg::Transpose(stored, wide_, s.rank()));
    // The mean of what is added to the offset.
    Matrix64 mean(s.rank());
    if (below_map.empty()) {
      std::copy(mean_[layer - 1].begin(), mean_[layer - 1].end(), mean.begin());
    } else {
      const Matrix64 m = linalg::Multiply(below_map, mean_[layer - 1], s.rank_below, wide_, 1);
      std::copy(m.begin(), m.end(), mean.begin());
    }
    const Matrix64 m = linalg::Multiply(token_map, token_mean_, s.rank_token, config_.d_model, 1);
    std::copy(m.begin(), m.end(), mean.begin() + s.rank_below);
    const Matrix64 added = linalg::Multiply(stored, mean, wide_, s.rank(), 1);
    for (uint32_t i = 0; i < wide_; ++i) offset[i] -= added[i];
  }
  out.offset = ToFloat(offset);
  transforms_[layer].clear();
  out.inverse.clear();
  for (uint32_t g = 0; g < 2 * s.groups(); ++g) {
    ASSIGN_OR_RETURN(Transform t, MakeTransform(layer, g, residual));
    out.inverse += QuantizeRows(kernels::GgmlType::kQ8_0, ToFloat(t.inverse));
    transforms_[layer].push_back(std::move(t));
  }
  out.table.assign(wide_, 0);
  return absl::OkStatus();
}

absl::Status Calibrator::Fit() {
  ProfileShape& s = content_.shape;
  content_.layers.resize(config_.layers - 1);
  content_.frequencies.assign(size_t{kProfileTables} * kProfileSymbols,
                              kRansFrequencySum / kProfileSymbols);
  // Every block is weighted so that the same step costs it the same KL: they add up.
  s.step = static_cast<float>(std::sqrt(options_.target_kl / (2.0 * (config_.layers - 1))));
  Matrix64 token_map;
  std::vector<Matrix64> below_maps(config_.layers);
  if (s.predicts()) {
    const size_t d = config_.d_model, wide = wide_;
    Matrix64 token_gram(d * d);
    for (uint32_t l = 1; l < config_.layers; ++l) {
      RETURN_IF_ERROR(Say(0.75 + 0.07 * l / config_.layers, "prediction"));
      const Normal normal = NormalEquations(l, {}, 0, {}, 0, kBaseNoise * s.step);
      ASSIGN_OR_RETURN(const Matrix64 p, Solve(normal.gram, normal.cross, normal.features, wide));
      transforms_[l].clear();
      const Matrix64 residual = Residual(l, normal, p);
      Matrix64 weight(wide * wide);
      for (uint32_t g = 0; g < 2 * s.groups(); ++g) {
        ASSIGN_OR_RETURN(Transform t, MakeTransform(l, g, residual));
        transforms_[l].push_back(std::move(t));
        const Matrix64 w = Weight(l, g);
        for (uint32_t i = 0; i < s.group; ++i) {
          std::copy_n(&w[size_t{i} * s.group], s.group,
                      &weight[(size_t{g} * s.group + i) * wide + size_t{g} * s.group]);
        }
      }
      // P^T W P of each kind of input; p is [features][wide].
      const auto weigh = [&](size_t from, size_t count) {
        const std::span<const double> part(p.data() + from * wide, count * wide);
        return linalg::Multiply(linalg::Multiply(part, weight, count, wide, wide),
                                linalg::Transpose(part, count, wide), count, wide, count);
      };
      const Matrix64 tokens = weigh(wide, d);
      for (size_t i = 0; i < tokens.size(); ++i) token_gram[i] += tokens[i];
      if (s.projects_below()) {
        ASSIGN_OR_RETURN(const Matrix64 map,
                         BestInputs(gram_[l - 1], weigh(0, wide), wide, s.rank_below));
        content_.layers[l - 1].below = QuantizeRows(s.predict_type, UnitVariance(map));
        ASSIGN_OR_RETURN(below_maps[l], Restore(s.predict_type, content_.layers[l - 1].below,
                                                size_t{s.rank_below} * wide));
      }
    }
    ASSIGN_OR_RETURN(const Matrix64 map, BestInputs(token_gram_, token_gram, d, s.rank_token));
    content_.token = QuantizeRows(kernels::GgmlType::kQ8_0, UnitVariance(map));
    ASSIGN_OR_RETURN(token_map,
                     Restore(kernels::GgmlType::kQ8_0, content_.token, size_t{s.rank_token} * d));
  }
  for (uint32_t l = 1; l < config_.layers; ++l) {
    RETURN_IF_ERROR(Say(0.82 + 0.05 * l / config_.layers, "transforms"));
    RETURN_IF_ERROR(FinishLayer(l, token_map, below_maps[l]));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ColumnEncoder>> Calibrator::MakeEncoder() const {
  ASSIGN_OR_RETURN(std::string bytes, WriteProfile(content_));
  ASSIGN_OR_RETURN(auto profile, CodecProfile::Parse(std::move(bytes)));
  return MakeResidualEncoder(std::move(profile), Embedding());
}

absl::Status Calibrator::ForColumns(
    size_t p, const std::function<absl::Status(const ColumnInput&)>& fn) const {
  const auto tokens = probes_[p].context();
  for (uint32_t t = 0; t < ColumnCount(static_cast<uint32_t>(tokens.size())); ++t) {
    RETURN_IF_ERROR(cancel_.Check());
    ASSIGN_OR_RETURN(const ColumnCopy column, ColumnCopy::Of(probes_[p].exact(), tokens, t));
    RETURN_IF_ERROR(fn(column.input()));
  }
  return absl::OkStatus();
}

absl::Status Calibrator::TrainOnTexts() {
  ASSIGN_OR_RETURN(const auto encoder, MakeEncoder());
  const uint32_t layers = config_.layers, refinements = content_.shape.planes - 1;
  std::vector<uint32_t> counts(size_t{layers - 1} * wide_ * kProfileSymbols);
  for (size_t p = 0; p < probes_.size(); ++p) {
    RETURN_IF_ERROR(ForColumns(p, [&](const ColumnInput& in) -> absl::Status {
      ASSIGN_OR_RETURN(const auto blocks,
                       QuantizeColumn(*encoder, in, const_cast<ThreadPool*>(&pool_)));
      for (uint32_t l = 1; l < layers; ++l) {
        for (uint32_t r = 0; r < wide_; ++r) {
          uint32_t* count = &counts[(size_t{l - 1} * wide_ + r) * kProfileSymbols];
          const int16_t* values = &blocks[l].symbols[size_t{r} * in.shape.tokens];
          for (uint32_t i = 0; i < in.shape.tokens; ++i) {
            const int32_t value = Coarser(values[i], refinements);
            ++count[std::abs(value) <= kMaxSymbolMagnitude ? ValueToSymbol(value) : kEscapeSymbol];
          }
        }
      }
      return absl::OkStatus();
    }));
  }
  const TrainedTables tables = TrainTables(counts);
  content_.frequencies = tables.frequencies;
  for (uint32_t l = 1; l < layers; ++l) {
    double bits[2] = {}, values = 0;
    for (uint32_t r = 0; r < wide_; ++r) {
      const size_t run = size_t{l - 1} * wide_ + r;
      content_.layers[l - 1].table[r] = tables.table_of_run[run];
      const auto count = std::span(counts).subspan(run * kProfileSymbols, kProfileSymbols);
      bits[r / row_] += RunBits(
          count, std::span(tables.frequencies)
                     .subspan(size_t{tables.table_of_run[run]} * kProfileSymbols, kProfileSymbols));
      values += std::accumulate(count.begin(), count.end(), 0.0);
    }
    report_.layers[l].bits_k = bits[0] / (values / 2);
    report_.layers[l].bits_v = bits[1] / (values / 2);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LevelReport>> Calibrator::MeasureLevels(int levels) {
  ASSIGN_OR_RETURN(std::string bytes, WriteProfile(content_));
  ASSIGN_OR_RETURN(const auto profile, CodecProfile::Parse(std::move(bytes)));
  ASSIGN_OR_RETURN(const auto encoder, MakeResidualEncoder(profile, Embedding()));
  ASSIGN_OR_RETURN(const auto decoder, MakeResidualDecoder(profile, Embedding()));
  std::vector<LevelReport> out(static_cast<size_t>(levels));
  uint64_t tokens = 0;
  for (size_t p = 0; p < probes_.size(); ++p) tokens += probes_[p].context().size();
  // One text at a time: a cache for each level.
  for (size_t p = 0; p < probes_.size(); ++p) {
    const auto n = static_cast<uint32_t>(probes_[p].context().size());
    std::vector<std::vector<std::vector<std::string>>> columns;
    RETURN_IF_ERROR(ForColumns(p, [&](const ColumnInput& in) -> absl::Status {
      ASSIGN_OR_RETURN(EncodedColumn encoded, encoder->EncodeColumn(in, &pool_));
      columns.push_back(std::move(encoded.planes));
      return absl::OkStatus();
    }));
    KvCache cache(pages_);
    RETURN_IF_ERROR(cache.Extend(n));
    std::vector<uint16_t> k(size_t{n} * row_), v(k.size());
    RETURN_IF_ERROR(probes_[p].exact().ExportBlock(0, 0, n, k.data(), v.data()));
    cache.ImportBlock(0, 0, n, k.data(), v.data());
    for (int level = 1; level <= levels; ++level) {
      LevelReport& report = out[static_cast<size_t>(level) - 1];
      report.level = level;
      for (size_t t = 0; t < columns.size(); ++t) {
        std::vector<std::vector<std::span<const uint8_t>>> blocks;
        for (const auto& planes : columns[t]) {
          blocks.emplace_back();
          for (int i = 0; i < level; ++i) {
            const std::string& plane = planes[static_cast<size_t>(i)];
            report.bytes_per_token +=
                static_cast<double>(plane.size()) / static_cast<double>(tokens);
            blocks.back().emplace_back(reinterpret_cast<const uint8_t*>(plane.data()),
                                       plane.size());
          }
        }
        const auto begin = static_cast<uint32_t>(t) * kColumnTokens;
        RETURN_IF_ERROR(DecodeColumn(
            nullptr, decoder.get(), blocks, begin,
            probes_[p].context().subspan(begin, ColumnTokens(n, static_cast<uint32_t>(t))), &pool_,
            &cache));
      }
      ASSIGN_OR_RETURN(const Fidelity f, probes_[p].Measure(&cache));
      const auto texts = static_cast<double>(probes_.size());
      report.fidelity.kl += f.kl / texts;
      report.fidelity.copy_kl += f.copy_kl / texts;
      report.fidelity.top1 += f.top1 / texts;
      report.fidelity.delta_nll += f.delta_nll / texts;
    }
  }
  return out;
}

absl::StatusOr<Calibration> Calibrator::Run(const std::vector<std::vector<int32_t>>& texts) {
  const auto begin = std::chrono::steady_clock::now();
  if (texts.empty()) return absl::InvalidArgumentError("no texts to calibrate from");
  torch_math::SetThreads(threads_);
  RETURN_IF_ERROR(ChooseShape());
  RETURN_IF_ERROR(Prefill(texts));
  RETURN_IF_ERROR(QueryMoments());
  RETURN_IF_ERROR(ValueWeights());
  RETURN_IF_ERROR(Moments());
  RETURN_IF_ERROR(Sensitivities());
  RETURN_IF_ERROR(Fit());
  // The step was computed from single blocks; all together they are measured.
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    RETURN_IF_ERROR(Say(0.87 + 0.03 * i, "step"));
    ASSIGN_OR_RETURN(const auto first, MeasureLevels(1));
    const double ratio = options_.target_kl / std::max(first[0].fidelity.kl, 1e-12);
    if (ratio > 0.95 && ratio < 1.05) break;
    content_.shape.step *= static_cast<float>(std::clamp(std::sqrt(ratio), 0.5, 2.0));
  }
  RETURN_IF_ERROR(Say(0.95, "tables"));
  RETURN_IF_ERROR(TrainOnTexts());
  RETURN_IF_ERROR(Say(0.97, "levels"));
  ASSIGN_OR_RETURN(report_.levels, MeasureLevels(static_cast<int>(content_.shape.planes)));
  Calibration out;
  ASSIGN_OR_RETURN(out.profile, WriteProfile(content_));
  report_.step = content_.shape.step;
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  out.report = report_;
  return out;
}

}  // namespace

absl::StatusOr<Calibration> Calibrate(
    std::shared_ptr<const Model> model, const std::vector<std::vector<int32_t>>& texts,
    const CalibrationOptions& options, const CancelToken& cancel,
    const std::function<void(double, const std::string&)>& progress) {
  return Calibrator(std::move(model), options, cancel, progress).Run(texts);
}

}  // namespace sparkv
