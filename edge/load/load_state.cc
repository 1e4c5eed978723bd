#include "edge/load/load_state.h"

#include <algorithm>

namespace sparkv {

LoadState::LoadState(uint32_t columns, uint32_t layers, std::vector<uint32_t> depth, bool has_query,
                     bool pipelined_query)
    : columns_(columns),
      layers_(layers),
      depth_(std::move(depth)),
      has_query_(has_query),
      pipelined_query_(pipelined_query),
      blocks_(size_t{columns} * layers, BlockState::kMissing),
      hidden_(columns, 0),
      layer_left_(layers, columns),
      column_left_(columns, layers) {
  depth_.resize(columns, 0);
}

std::optional<uint32_t> LoadState::Gap(uint32_t t, uint32_t below) const {
  for (uint32_t l = hidden_[t]; l < std::min(below, layers_); ++l) {
    if (block(t, l) == BlockState::kMissing) return l;
  }
  return std::nullopt;
}

bool LoadState::AttendReady(uint32_t t, uint32_t l) const {
  for (uint32_t earlier = 0; earlier <= t; ++earlier) {
    if (!present(earlier, l)) return false;
  }
  return true;
}

std::optional<ComputeOp> LoadState::NextOp() {
  if (has_query_ && query_ < layers_ && layer_complete(query_) &&
      (pipelined_query_ || done_ == blocks_total())) {
    return ComputeOp{ComputeOp::Kind::kQuery, 0, query_};
  }
  for (uint32_t t = 0; t < columns_; ++t) {
    const std::optional<uint32_t> gap = Gap(t, depth_[t]);
    if (!gap.has_value()) continue;
    const uint32_t layer = hidden_[t];
    if (*gap == layer) {
      At(t, layer) = BlockState::kComputing;
      return ComputeOp{ComputeOp::Kind::kProject, t, layer};
    }
    if (AttendReady(t, layer)) return ComputeOp{ComputeOp::Kind::kAttend, t, layer};
  }
  return std::nullopt;
}

void LoadState::Finish(const ComputeOp& op) {
  switch (op.kind) {
    case ComputeOp::Kind::kProject:
      MarkPresent(op.column, op.layer, BlockState::kComputed);
      return;
    case ComputeOp::Kind::kAttend:
      hidden_[op.column] = op.layer + 1;
      return;
    case ComputeOp::Kind::kQuery:
      query_ = op.layer + 1;
      return;
  }
}

void LoadState::MarkPresent(uint32_t t, uint32_t l, BlockState state) {
  At(t, l) = state;
  --layer_left_[l];
  --column_left_[t];
  ++done_;
}

bool LoadState::ClaimForDecode(uint32_t t, uint32_t l) {
  if (block(t, l) != BlockState::kMissing) return false;
  At(t, l) = BlockState::kDecoding;
  return true;
}

void LoadState::FinishDecode(uint32_t t, uint32_t l, bool ok) {
  if (ok) return MarkPresent(t, l, BlockState::kStreamed);
  At(t, l) = BlockState::kMissing;
  MustCompute(t, l);
}

void LoadState::MustCompute(uint32_t t, uint32_t l) { depth_[t] = std::max(depth_[t], l + 1); }

void LoadState::ComputeAll() { depth_.assign(columns_, layers_); }

bool LoadState::done() const { return has_query_ ? query_ == layers_ : done_ == blocks_total(); }

}  // namespace sparkv
