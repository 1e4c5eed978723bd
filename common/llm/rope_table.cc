#include "common/llm/rope_table.h"

#include <algorithm>
#include <cmath>

#include "kernels/row_ops.h"

namespace sparkv {

RopeTable::RopeTable(const RopeConfig& config) : kind_(config.kind), frequency_(config.dim / 2) {
  for (size_t i = 0; i < frequency_.size(); ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / config.dim;
    frequency_[i] = std::pow(config.base, exponent) * config.frequency_scale;
    if (!config.frequency_factors.empty()) frequency_[i] /= config.frequency_factors[i];
  }
}

void RopeTable::Reserve(uint32_t n) {
  if (n <= positions_) return;
  // In double, then rounded: an f32 angle of position 8000 is already 5e-4 off.
  const uint32_t target = std::max({n, 2 * positions_, 1024u});
  cos_.resize(size_t{target} * frequency_.size());
  sin_.resize(cos_.size());
  for (uint32_t p = positions_; p < target; ++p) {
    for (size_t i = 0; i < frequency_.size(); ++i) {
      const double angle = p * frequency_[i];
      cos_[p * frequency_.size() + i] = static_cast<float>(std::cos(angle));
      sin_[p * frequency_.size() + i] = static_cast<float>(std::sin(angle));
    }
  }
  positions_ = target;
}

void RopeTable::Rotate(const float* cos, const float* sin, float* head) const {
  if (kind_ == RopeKind::kInterleaved) {
    kernels::RopeInterleaved(head, cos, sin, frequency_.size());
  } else {
    kernels::RopeSplitHalf(head, cos, sin, frequency_.size());
  }
}

void RopeTable::Apply(uint32_t position, float* head) const {
  Rotate(Cos(position), Sin(position), head);
}

void RopeTable::ApplyBack(uint32_t position, float* head) const {
  std::vector<float> sin(Sin(position), Sin(position) + frequency_.size());
  for (float& x : sin) x = -x;
  Rotate(Cos(position), sin.data(), head);
}

}  // namespace sparkv
