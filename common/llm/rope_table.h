// Cosines and sines of the rotary embedding, for positions 0, 1, ...
#pragma once

#include <cstdint>
#include <vector>

#include "common/llm/model_config.h"

namespace sparkv {

class RopeTable {
 public:
  explicit RopeTable(const RopeConfig& config);

  // Makes positions [0, n) available; grows by doubling. Not while another thread reads.
  void Reserve(uint32_t n);
  const float* Cos(uint32_t position) const { return &cos_[size_t{position} * frequency_.size()]; }
  const float* Sin(uint32_t position) const { return &sin_[size_t{position} * frequency_.size()]; }
  // Radians per position of each pair.
  const std::vector<double>& frequency() const { return frequency_; }
  // Rotates the first config.dim values of one head's row, and back.
  void Apply(uint32_t position, float* head) const;
  void ApplyBack(uint32_t position, float* head) const;

 private:
  void Rotate(const float* cos, const float* sin, float* head) const;

  const RopeKind kind_;
  std::vector<double> frequency_;  // radians per position, [dim/2]
  uint32_t positions_ = 0;
  std::vector<float> cos_, sin_;  // [positions][dim/2]
};

}  // namespace sparkv
