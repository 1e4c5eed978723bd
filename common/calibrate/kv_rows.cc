#include "common/calibrate/kv_rows.h"

#include <algorithm>

namespace sparkv {

KvRows::KvRows(const ModelConfig& config, uint32_t context, ThreadPool* pool)
    : config_(config), rope_(config.rope), pool_(pool), row_(config.kv_heads * config.head_dim) {
  rope_.Reserve(context);
}

std::vector<float> KvRows::Load(const FidelityProbe& probe, uint32_t layer) const {
  const auto n = static_cast<uint32_t>(probe.context().size()) - kCalibrationSinkTokens;
  const uint32_t dim = config_.head_dim;
  std::vector<float> heads(size_t{n} * row_), z(size_t{n} * width());
  for (const KvSide side : {KvSide::kK, KvSide::kV}) {
    probe.exact().ReadRows(layer, side, kCalibrationSinkTokens, n, heads.data(), size_t{n} * dim);
    const size_t offset = side == KvSide::kK ? 0 : row_;
    for (uint32_t h = 0; h < config_.kv_heads; ++h) {
      for (uint32_t i = 0; i < n; ++i) {
        std::copy_n(&heads[(size_t{h} * n + i) * dim], dim,
                    &z[i * width() + offset + size_t{h} * dim]);
      }
    }
  }
  ParallelFor(pool_, n, 64, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const auto position = kCalibrationSinkTokens + static_cast<uint32_t>(i);
      for (uint32_t h = 0; h < config_.kv_heads; ++h) {
        rope_.ApplyBack(position, &z[i * width() + size_t{h} * dim]);
      }
    }
  });
  return z;
}

void KvRows::Rotate(uint32_t position, float* k) const {
  for (uint32_t h = 0; h < config_.kv_heads; ++h) {
    rope_.Apply(position, k + size_t{h} * config_.head_dim);
  }
}

}  // namespace sparkv
