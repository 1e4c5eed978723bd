#include "edge/load/load_state.h"

#include <algorithm>

namespace sparkv {

double OpSeconds(const LoadProblem& problem, const ComputeOp& op) {
  switch (op.kind) {
    case ComputeOp::Kind::kProject:
      return problem.ProjectSeconds(op.column);
    case ComputeOp::Kind::kAttend:
      return problem.AttendSeconds(op.column, op.layer);
    case ComputeOp::Kind::kFinal:
      return problem.FinalSeconds(op.column);
    case ComputeOp::Kind::kQuery:
      return problem.QuerySeconds();
  }
  return 0;
}

LoadState::LoadState(uint32_t columns, uint32_t layers, std::vector<uint32_t> depth, bool has_query,
                     bool pipelined_query, const CodecRules& rules)
    : columns_(columns),
      layers_(layers),
      depth_(std::move(depth)),
      has_query_(has_query),
      pipelined_query_(pipelined_query),
      rules_(rules),
      least_depth_(columns, rules.first_layer_local ? 1 : 0),
      blocks_(size_t{columns} * layers, BlockState::kMissing),
      hidden_(columns, 0),
      closed_(columns, layers),
      layer_left_(layers, columns),
      column_left_(columns, layers) {
  depth_.resize(columns, 0);
  for (uint32_t t = 0; t < columns_; ++t) SetDepth(t, depth_[t]);
}

void LoadState::SetDepth(uint32_t t, uint32_t depth) {
  depth_[t] = std::min(std::max(depth, least_depth_[t]), layers_);
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
  if (rules_.first_layer_local && layer_left_[0] > 0) {
    for (uint32_t t = 0; t < columns_; ++t) {
      if (block(t, 0) != BlockState::kMissing) continue;
      At(t, 0) = BlockState::kComputing;
      return ComputeOp{ComputeOp::Kind::kProject, t, 0};
    }
  }
  const std::optional<BlockRef> final_block = NextFinal();
  for (uint32_t t = 0; t < columns_; ++t) {
    const std::optional<uint32_t> gap = Gap(t, depth_[t]);
    if (!gap.has_value()) continue;
    const uint32_t layer = hidden_[t];
    // The query needs the lower layer first.
    if (final_block.has_value() && final_block->layer <= layer) break;
    if (*gap == layer) {
      At(t, layer) = BlockState::kComputing;
      if (rules_.whole_columns && layer > 0) Close(t, layer);
      return ComputeOp{ComputeOp::Kind::kProject, t, layer};
    }
    if (AttendReady(t, layer)) return ComputeOp{ComputeOp::Kind::kAttend, t, layer};
  }
  if (final_block.has_value()) {
    At(final_block->column, final_block->layer) = BlockState::kFinishing;
    return ComputeOp{ComputeOp::Kind::kFinal, final_block->column, final_block->layer};
  }
  return std::nullopt;
}

std::optional<BlockRef> LoadState::NextFinal() const {
  for (uint32_t l = 1; rules_.needs_final && l < layers_; ++l) {
    for (uint32_t t = 0; t < columns_; ++t) {
      if (block(t, l) == BlockState::kSymbols && present(t, l - 1)) return BlockRef{t, l};
    }
  }
  return std::nullopt;
}

void LoadState::Finish(const ComputeOp& op) {
  switch (op.kind) {
    case ComputeOp::Kind::kProject:
      MarkPresent(op.column, op.layer, BlockState::kComputed);
      return;
    case ComputeOp::Kind::kFinal:
      MarkPresent(op.column, op.layer, BlockState::kStreamed);
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
  if (!Wanted(t, l)) return false;
  At(t, l) = BlockState::kDecoding;
  return true;
}

void LoadState::FinishDecode(uint32_t t, uint32_t l, bool ok) {
  if (ok && l < closed_[t]) {
    if (!rules_.needs_final) return MarkPresent(t, l, BlockState::kStreamed);
    At(t, l) = BlockState::kSymbols;
    return;
  }
  At(t, l) = BlockState::kMissing;
  MustCompute(t, l);
}

void LoadState::FailFinal(uint32_t t, uint32_t l) {
  At(t, l) = BlockState::kMissing;
  MustCompute(t, l);
}

void LoadState::Close(uint32_t t, uint32_t l) {
  if (l >= closed_[t]) return;
  closed_[t] = l;
  least_depth_[t] = depth_[t] = layers_;
  for (; l < layers_; ++l) {
    if (block(t, l) == BlockState::kSymbols) At(t, l) = BlockState::kMissing;
  }
}

void LoadState::MustCompute(uint32_t t, uint32_t l) {
  least_depth_[t] = std::max(least_depth_[t], l + 1);
  depth_[t] = std::max(depth_[t], l + 1);
  // What is streamed above a local first layer is made for it.
  if (rules_.whole_columns && !(l == 0 && rules_.first_layer_local)) Close(t, l);
}

void LoadState::ComputeAll() {
  for (uint32_t t = 0; t < columns_; ++t) {
    for (uint32_t l = 0; l < layers_; ++l) {
      if (block(t, l) == BlockState::kMissing) MustCompute(t, l);
    }
    least_depth_[t] = depth_[t] = layers_;
  }
}

bool LoadState::done() const { return has_query_ ? query_ == layers_ : done_ == blocks_total(); }

}  // namespace sparkv
