#include "common/codec/enc_base_mismatch.h"

#include <algorithm>

#include "kernels/gguf_gemm.h"

namespace sparkv {
namespace {

constexpr uint32_t kFirstSplit = 2;  // layer 1 always stands on the exact layer 0

}  // namespace

BaseMismatch::BaseMismatch(const ResidualTransform& transform, const ForwardMatrices& forward,
                           uint32_t tokens)
    : transform_(transform),
      forward_(forward),
      ld_(kernels::GemmStride(2 * transform.profile().shape().row())),
      scratch_(transform.profile().shape()) {
  const ProfileShape& s = transform.profile().shape();
  if (s.rank_below == 0 || s.geometry.layers <= kFirstSplit) return;
  const uint32_t n = std::min(kMaxRows, tokens);
  for (uint32_t i = 0; i < n; ++i) {
    rows_.push_back(static_cast<uint32_t>((uint64_t{2} * i + 1) * tokens / (2 * n)));
  }
  delta_.resize(n * ld_);
}

uint32_t BaseMismatch::SplitOf(size_t i) const {
  const uint32_t splits = transform_.profile().shape().geometry.layers - kFirstSplit;
  return kFirstSplit + static_cast<uint32_t>(i) % splits;
}

void BaseMismatch::Predict(uint32_t layer, const float* z, TransformChain* chain) {
  const uint32_t wide = 2 * transform_.profile().shape().row();
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (SplitOf(i) != layer) continue;
    const float* streamed = chain->Z(rows_[i]);
    for (uint32_t j = 0; j < wide; ++j) delta_[i * ld_ + j] = z[i * ld_ + j] - streamed[j];
  }
  const auto n = static_cast<uint32_t>(rows_.size());
  for (uint32_t i = 0; i < n; ++i) std::fill_n(&scratch_.y[i * scratch_.ld_y], wide, 0.0f);
  transform_.AddBelow(layer, delta_.data(), ld_, n, &scratch_);
  for (uint32_t i = 0; i < n; ++i) {
    std::copy_n(&scratch_.y[i * scratch_.ld_y], wide, &delta_[i * ld_]);
  }
}

void BaseMismatch::Compare(uint32_t layer, const float* z, TransformChain* chain,
                           const uint8_t* exact) {
  const ProfileShape& s = transform_.profile().shape();
  std::vector<size_t> split;  // the rows that are split at this layer or below
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (exact[rows_[i]] != 0) {
      std::fill_n(&delta_[i * ld_], 2 * s.row(), 0.0f);
    } else if (SplitOf(i) <= layer) {
      split.push_back(i);
    }
  }
  const auto n = static_cast<uint32_t>(split.size());
  // What the transform makes of scratch_.x.
  const auto add = [&](uint32_t g, double* sum) {
    ApplyForward(forward_[layer - 1][g], s.group, scratch_.x.data(), scratch_.ld_x, n,
                 scratch_.y.data(), &scratch_.gemm);
    for (size_t i = 0; i < size_t{n} * s.group; ++i) {
      *sum += static_cast<double>(scratch_.y[i]) * scratch_.y[i];
    }
  };
  float* const rows = scratch_.x.data();
  for (uint32_t g = 0; g < 2 * s.groups(); ++g) {
    const size_t first = size_t{g} * s.group;
    for (uint32_t i = 0; i < n; ++i) {
      const float* truth = z + split[i] * ld_ + first;
      const float* streamed = chain->Z(rows_[split[i]]) + first;
      for (uint32_t c = 0; c < s.group; ++c) rows[i * scratch_.ld_x + c] = truth[c] - streamed[c];
    }
    add(g, &own_);
    for (uint32_t i = 0; i < n; ++i) {
      std::copy_n(&delta_[split[i] * ld_ + first], s.group, rows + i * scratch_.ld_x);
    }
    add(g, &carried_);
  }
}

}  // namespace sparkv
