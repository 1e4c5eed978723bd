#include "common/calibrate/output_weights.h"

#include <algorithm>
#include <cstdint>
#include <random>

#include "common/base/status.h"
#include "common/llm/linalg.h"
#include "common/llm/rope_table.h"
#include "common/llm/weights.h"
#include "kernels/gguf_dequant.h"

namespace sparkv {
namespace {

constexpr uint32_t kQueryRows = 1500;  // sampled of each text
constexpr uint32_t kQueryTokens = 1024;

// An error in a key changes a logit by its product with a query, rotated by the distance of the
// two.
absl::Status AddKeyWeights(const ModelConfig& config, Decoder* decoder,
                           std::span<const FidelityProbe> probes,
                           const std::function<absl::Status(size_t text)>& progress,
                           std::vector<std::vector<Matrix64>>* weights) {
  const uint32_t dim = config.head_dim, heads = config.heads, group = heads / config.kv_heads;
  RopeTable rope(config.rope);
  rope.Reserve(kQueryTokens);
  std::mt19937 random(1);
  for (size_t p = 0; p < probes.size(); ++p) {
    RETURN_IF_ERROR(progress(p));
    const auto tokens = probes[p].context();
    const auto n = static_cast<uint32_t>(std::min<size_t>(tokens.size(), kQueryTokens));
    std::vector<float> hidden(size_t{n} * config.d_model), q(size_t{n} * heads * dim);
    RETURN_IF_ERROR(decoder->Embed(tokens.first(n), hidden.data()));
    std::vector<uint32_t> rows(kQueryRows), distances(kQueryRows);
    for (uint32_t i = 0; i < kQueryRows; ++i) {
      rows[i] = std::min(n - 1, 64 + static_cast<uint32_t>(random() % n));
      distances[i] = static_cast<uint32_t>(random() % (rows[i] + 1));
    }
    for (uint32_t l = 0; l < config.layers; ++l) {
      RETURN_IF_ERROR(decoder->Queries(l, hidden.data(), n, q.data()));
      std::vector<float> sample(size_t{kQueryRows} * group * dim);
      for (uint32_t h = 0; h < config.kv_heads; ++h) {
        for (uint32_t i = 0; i < kQueryRows; ++i) {
          for (uint32_t j = 0; j < group; ++j) {
            float* row = &sample[(size_t{i} * group + j) * dim];
            std::copy_n(&q[(size_t{rows[i]} * heads + h * group + j) * dim], dim, row);
            rope.Apply(distances[i], row);
          }
        }
        RETURN_IF_ERROR(linalg::AddGram(sample.data(), dim, sample.data(), dim,
                                        size_t{kQueryRows} * group, (*weights)[l][h].data()));
      }
      if (l + 1 < config.layers) {
        RETURN_IF_ERROR(decoder->Attend(l, hidden.data(), 0, n, probes[p].exact()));
      }
    }
  }
  return absl::OkStatus();
}

// An error in a value changes the output by its product with W_O.
absl::Status AddValueWeights(const Model& model, std::vector<std::vector<Matrix64>>* weights) {
  const ModelConfig& config = model.config();
  const uint32_t dim = config.head_dim, group = config.heads / config.kv_heads;
  const size_t width = size_t{config.heads} * dim;
  std::vector<float> dense(size_t{config.d_model} * width), head(size_t{config.d_model} * dim);
  for (uint32_t l = 0; l < config.layers; ++l) {
    const auto& o = model.weights().layers[l].o;
    for (uint32_t r = 0; r < o.rows; ++r) {
      RETURN_IF_ERROR(kernels::DequantizeRow(o.type, o.Row(r), &dense[r * width], width));
    }
    for (uint32_t h = 0; h < config.kv_heads; ++h) {
      for (uint32_t j = 0; j < group; ++j) {
        for (uint32_t r = 0; r < o.rows; ++r) {
          std::copy_n(&dense[r * width + (size_t{h} * group + j) * dim], dim,
                      &head[size_t{r} * dim]);
        }
        RETURN_IF_ERROR(linalg::AddGram(head.data(), dim, head.data(), dim, o.rows,
                                        (*weights)[l][config.kv_heads + h].data()));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::vector<Matrix64>>> MeasureOutputWeights(
    const Model& model, Decoder* decoder, std::span<const FidelityProbe> probes,
    const std::function<absl::Status(size_t text)>& progress) {
  const ModelConfig& config = model.config();
  const uint32_t dim = config.head_dim;
  std::vector<std::vector<Matrix64>> weights(
      config.layers,
      std::vector<Matrix64>(size_t{2} * config.kv_heads, Matrix64(size_t{dim} * dim)));
  RETURN_IF_ERROR(AddKeyWeights(config, decoder, probes, progress, &weights));
  RETURN_IF_ERROR(AddValueWeights(model, &weights));
  for (uint32_t l = 0; l < config.layers; ++l) {
    // Each side's weight is 1 on average; how K and V compare is measured.
    for (uint32_t side = 0; side < 2; ++side) {
      double sum = 0;
      for (uint32_t h = 0; h < config.kv_heads; ++h) {
        sum += Trace(weights[l][side * config.kv_heads + h], dim);
      }
      for (uint32_t h = 0; h < config.kv_heads; ++h) {
        for (double& w : weights[l][side * config.kv_heads + h]) w *= config.kv_heads * dim / sum;
      }
    }
  }
  return weights;
}

}  // namespace sparkv
