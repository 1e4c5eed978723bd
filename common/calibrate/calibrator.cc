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
#include "common/calibrate/kv_moments.h"
#include "common/calibrate/kv_rows.h"
#include "common/calibrate/output_weights.h"
#include "common/calibrate/table_training.h"
#include "common/calibrate/transform_fit.h"
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
#include "kernels/gguf_dequant.h"

namespace sparkv {
namespace {

constexpr uint32_t kMaxGroup = 256;  // values transformed together at most
// The prediction is fitted for a base that is this much noisier than the first plane's
// quantization, so that errors die out from layer to layer, also where the base was computed and
// has none.
constexpr double kBaseNoise = 1.5;
constexpr double kProbeNoise = 0.02;       // of a block's variance, to measure its sensitivity
constexpr uint32_t kSensitivityTexts = 3;  // that each block is probed on

// a [n][n] += factor * b b^T of b [n][m].
void AddOuter(std::span<const double> b, size_t n, size_t m, double factor, Matrix64* a) {
  const Matrix64 product = linalg::Multiply(b, linalg::Transpose(b, n, m), n, m, n);
  for (size_t i = 0; i < product.size(); ++i) (*a)[i] += factor * product[i];
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
        rows_(config_, options.context, &pool_),
        row_(rows_.row()),
        wide_(rows_.width()),
        moments_(*model_, rows_, options.predict) {}

  absl::StatusOr<Calibration> Run(const std::vector<std::vector<int32_t>>& texts);

 private:
  absl::Status Say(double done, const std::string& what) {
    RETURN_IF_ERROR(cancel_.Check());
    if (progress_) progress_(done, what);
    return absl::OkStatus();
  }
  absl::Status ChooseShape();
  absl::Status Prefill(const std::vector<std::vector<int32_t>>& texts);
  absl::Status Weigh();
  absl::Status Moments();
  // Weight of errors of one transform group, [group][group], sensitivity included.
  Matrix64 Weight(uint32_t layer, uint32_t group) const;
  absl::StatusOr<FittedTransform> MakeTransform(uint32_t layer, uint32_t group,
                                                std::span<const double> residual) const;
  // What the errors that quantization leaves in z(layer) add to its gram, [wide][wide]; empty for
  // layer 0, which has none.
  Matrix64 QuantizationNoise(uint32_t layer, double step) const;
  absl::Status Sensitivities();
  absl::Status Fit();
  absl::Status FinishLayer(uint32_t layer, std::span<const double> token_map,
                           std::span<const double> below_map);
  absl::Status TrainOnTexts();
  // Sums over all tokens have unit size; their means shall have, so that all inputs are of one
  // size.
  std::vector<float> UnitVariance(const Matrix64& map) const {
    std::vector<float> out = ToFloat(map);
    for (float& x : out) x *= std::sqrt(static_cast<float>(moments_.tokens()));
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
  const KvRows rows_;
  const uint32_t row_, wide_;
  KvMoments moments_;
  std::shared_ptr<KvPagePool> pages_;
  std::vector<FidelityProbe> probes_;
  std::vector<std::vector<Matrix64>> weight_;  // [layers][kv_heads * 2] of [head_dim][head_dim]
  std::vector<std::array<double, 2>> sensitivity_;        // [layers] of K, V
  std::vector<std::vector<FittedTransform>> transforms_;  // [layers][2 * groups]
  ProfileContent content_;
  CalibrationReport report_;
};

absl::Status Calibrator::ChooseShape() {
  ProfileShape& s = content_.shape;
  const CodecInfo& info = options_.predict ? AatcPredInfo() : AatcInfo();
  if (options_.context + FidelityProbe::kTokens > config_.context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("texts of ", options_.context, " tokens, and the ", FidelityProbe::kTokens,
                     " that they are measured by, are more than the model's context of ",
                     config_.context_length));
  }
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
  s.frequency = RopeTable(config_.rope).frequency();
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
    report_.tokens += context;
  }
  report_.texts = static_cast<uint32_t>(texts.size());
  return absl::OkStatus();
}

absl::Status Calibrator::Weigh() {
  ASSIGN_OR_RETURN(
      weight_, MeasureOutputWeights(*model_, &decoder_, probes_, [this](size_t text) {
        return Say(0.1 + 0.1 * static_cast<double>(text) / static_cast<double>(probes_.size()),
                   "queries");
      }));
  return absl::OkStatus();
}

absl::Status Calibrator::Moments() {
  for (size_t p = 0; p < probes_.size(); ++p) {
    RETURN_IF_ERROR(
        Say(0.2 + 0.1 * static_cast<double>(p) / static_cast<double>(probes_.size()), "moments"));
    RETURN_IF_ERROR(moments_.Add(probes_[p]));
  }
  moments_.Finish();
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

absl::StatusOr<FittedTransform> Calibrator::MakeTransform(uint32_t layer, uint32_t group,
                                                          std::span<const double> residual) const {
  const uint32_t n = content_.shape.group;
  Matrix64 s(size_t{n} * n);
  for (uint32_t i = 0; i < n; ++i) {
    std::copy_n(&residual[(size_t{group} * n + i) * wide_ + size_t{group} * n], n,
                &s[size_t{i} * n]);
  }
  return FitTransform(Weight(layer, group), s, n);
}

Matrix64 Calibrator::QuantizationNoise(uint32_t layer, double step) const {
  if (layer == 0) return {};
  const uint32_t n = content_.shape.group;
  Matrix64 out(size_t{wide_} * wide_);
  for (uint32_t g = 0; g < transforms_[layer].size(); ++g) {
    Matrix64 noise(size_t{n} * n);
    AddOuter(transforms_[layer][g].inverse, n, n, step * step / 12 * moments_.tokens(), &noise);
    for (uint32_t i = 0; i < n; ++i) {
      std::copy_n(&noise[size_t{i} * n], n, &out[(size_t{g} * n + i) * wide_ + size_t{g} * n]);
    }
  }
  return out;
}

// Adds noise as quantization makes it to one layer's K or V at a time, and measures what it does.
absl::Status Calibrator::Sensitivities() {
  const uint32_t n = content_.shape.group, groups = content_.shape.groups();
  sensitivity_.assign(config_.layers, {1.0, 1.0});
  transforms_.assign(config_.layers, {});
  const uint32_t texts =
      std::min<uint32_t>(kSensitivityTexts, static_cast<uint32_t>(probes_.size()));
  for (uint32_t l = 1; l < config_.layers; ++l) {
    Matrix64 residual = moments_.Covariance(l);
    if (options_.predict) {
      const KvMoments::Normal normal = moments_.NormalEquations(l, {}, {});
      ASSIGN_OR_RETURN(const Matrix64 p, moments_.Fit(normal));
      residual = moments_.Residual(l, normal, p);
    }
    for (uint32_t g = 0; g < 2 * groups; ++g) {
      ASSIGN_OR_RETURN(FittedTransform t, MakeTransform(l, g, residual));
      transforms_[l].push_back(std::move(t));
    }
  }
  std::vector<std::array<double, 2>> sums(config_.layers);
  std::mt19937 random(2);
  for (size_t p = 0; p < probes_.size(); ++p) {
    const FidelityProbe& probe = probes_[p];
    const auto tokens = static_cast<uint32_t>(probe.context().size());
    const uint32_t rows = tokens - kCalibrationSinkTokens;
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
      const std::vector<float> z = rows_.Load(probe, l);
      for (uint32_t side = 0; side < 2; ++side) {
        // Each block is probed on a few texts, in turn.
        if ((p + 2 * probes_.size() - (2 * l + side) % probes_.size()) % probes_.size() >= texts)
          continue;
        double variance = 0, spread = 0;
        for (uint32_t i = 0; i < row_; ++i) {
          const size_t j = size_t{side} * row_ + i;
          variance += moments_.gram(l)[j * wide_ + j] / moments_.tokens();
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
          rows_.Rotate(kCalibrationSinkTokens + i, &rows_k[size_t{i} * wide_]);
        }
        noisy.WriteRows(l, kCalibrationSinkTokens, rows, rows_k.data(), rows_k.data() + row_,
                        wide_);
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
  Matrix64 residual = moments_.Covariance(layer);
  std::vector<double> offset = moments_.mean(layer);
  if (s.predicts()) {
    const KvMoments::Normal normal =
        moments_.NormalEquations(layer,
                                 {.below_map = below_map,
                                  .below_rank = s.rank_below,
                                  .token_map = token_map,
                                  .token_rank = s.rank_token},
                                 QuantizationNoise(layer - 1, kBaseNoise * s.step));
    ASSIGN_OR_RETURN(const Matrix64 fitted, moments_.Fit(normal));
    out.predict = QuantizeRows(s.predict_type, ToFloat(linalg::Transpose(fitted, s.rank(), wide_)));
    ASSIGN_OR_RETURN(const Matrix64 stored,
                     Restore(s.predict_type, out.predict, size_t{wide_} * s.rank()));
    residual = moments_.Residual(layer, normal, linalg::Transpose(stored, wide_, s.rank()));
    // The mean of what is added to the offset.
    Matrix64 mean(s.rank());
    if (below_map.empty()) {
      std::copy(moments_.mean(layer - 1).begin(), moments_.mean(layer - 1).end(), mean.begin());
    } else {
      const Matrix64 m =
          linalg::Multiply(below_map, moments_.mean(layer - 1), s.rank_below, wide_, 1);
      std::copy(m.begin(), m.end(), mean.begin());
    }
    const Matrix64 m =
        linalg::Multiply(token_map, moments_.token_mean(), s.rank_token, config_.d_model, 1);
    std::copy(m.begin(), m.end(), mean.begin() + s.rank_below);
    const Matrix64 added = linalg::Multiply(stored, mean, wide_, s.rank(), 1);
    for (uint32_t i = 0; i < wide_; ++i) offset[i] -= added[i];
  }
  out.offset = ToFloat(offset);
  transforms_[layer].clear();
  out.inverse.clear();
  for (uint32_t g = 0; g < 2 * s.groups(); ++g) {
    ASSIGN_OR_RETURN(FittedTransform t, MakeTransform(layer, g, residual));
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
      const KvMoments::Normal normal =
          moments_.NormalEquations(l, {}, QuantizationNoise(l - 1, kBaseNoise * s.step));
      ASSIGN_OR_RETURN(const Matrix64 p, moments_.Fit(normal));
      transforms_[l].clear();
      const Matrix64 residual = moments_.Residual(l, normal, p);
      Matrix64 weight(wide * wide);
      for (uint32_t g = 0; g < 2 * s.groups(); ++g) {
        ASSIGN_OR_RETURN(FittedTransform t, MakeTransform(l, g, residual));
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
                         BestInputs(moments_.gram(l - 1), weigh(0, wide), wide, s.rank_below));
        content_.layers[l - 1].below = QuantizeRows(s.predict_type, UnitVariance(map));
        ASSIGN_OR_RETURN(below_maps[l], Restore(s.predict_type, content_.layers[l - 1].below,
                                                size_t{s.rank_below} * wide));
      }
    }
    ASSIGN_OR_RETURN(const Matrix64 map,
                     BestInputs(moments_.token_gram(), token_gram, d, s.rank_token));
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
  RETURN_IF_ERROR(Weigh());
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
