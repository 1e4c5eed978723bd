#include "edge/load/controller.h"

#include <algorithm>
#include <cmath>

namespace sparkv {
namespace {

// Plans are made at every choice of the link, but not more often than this.
constexpr double kLeastReplanSeconds = 0.005;
// The slowdown is a mean over about so many seconds of compute.
constexpr double kSlowdownSeconds = 0.3;
// Estimates lag behind a link that gets faster; with a little more under way than one
// bandwidth-delay product they can grow.
constexpr double kWindowMargin = 1.5;

}  // namespace

LoadController::LoadController(const LoadProblem& problem, LoadPolicy* policy,
                               const CodecRules& rules)
    : problem_(problem),
      policy_(policy),
      first_plan_(policy->Plan(problem)),
      plan_(first_plan_),
      state_(problem.columns(), problem.layers, first_plan_.depth, problem.query_tokens > 0,
             first_plan_.pipelined_query, rules),
      link_(problem.link_bytes_per_s),
      under_way_(size_t{problem.columns()} * problem.layers, false),
      stolen_(under_way_.size(), false),
      failed_(under_way_.size(), false) {}

LoadView LoadController::View(double now_s) const {
  LoadView view{problem_, state_, under_way_};
  const auto partial = static_cast<double>(received_ - whole_received_);
  view.under_way_bytes = std::max(0.0, under_way_bytes_ - partial);
  view.streaming = streaming_;
  view.now_s = now_s;
  view.running = running_;
  if (running_.has_value()) {
    view.running_left_s =
        std::max(0.0, problem_.slowdown * running_alone_s_ * (1 - running_share_) -
                          (now_s - running_since_s_));
  }
  return view;
}

void LoadController::Replan(double now_s) {
  problem_.link_bytes_per_s = streaming_ ? link_.BytesPerSecond(now_s) : 0;
  planned_s_ = now_s;
  ++migrations_.replans;
  policy_->Replan(View(now_s), &plan_);
  for (uint32_t t = 0; t < problem_.columns(); ++t) state_.SetDepth(t, plan_.depth[t]);
}

void LoadController::Tick(double now_s) {
  if (now_s - planned_s_ >= kReplanSeconds) Replan(now_s);
}

void LoadController::StartStream(double now_s) {
  streaming_ = true;
  link_.SetBusy(now_s, true);
}

void LoadController::OnBytes(double now_s, uint64_t bytes) {
  received_ = std::max(received_, bytes);
  link_.OnBytes(now_s, received_);
}

std::vector<BlockRef> LoadController::PickBlocks(double now_s) {
  std::vector<BlockRef> picked;
  if (!streaming_) return picked;
  const auto order = [&](const BlockRef& block) {
    under_way_[size_t{block.column} * problem_.layers + block.layer] = true;
    under_way_bytes_ += static_cast<double>(problem_.bytes(block.column, block.layer));
    ++under_way_count_;
    last_ = block;
    picked.push_back(block);
  };
  if (!held_ordered_) {
    held_ordered_ = true;
    const LoadView view = View(now_s);
    for (uint32_t l = 0; l < problem_.layers; ++l) {
      for (uint32_t t = 0; t < problem_.columns(); ++t) {
        if (problem_.bytes(t, l) <= kHeldBytes && view.Orderable(t, l)) order({t, l});
      }
    }
  }
  bool planned = false;
  while (true) {
    // One block is on the link; behind it a round trip's worth waits at the server.
    const double window = kWindowMargin * problem_.link_bytes_per_s * problem_.rtt_s;
    const double partial = static_cast<double>(received_ - whole_received_);
    if (under_way_count_ >= kLeastBlocks &&
        under_way_bytes_ - partial -
                static_cast<double>(problem_.bytes(last_.column, last_.layer)) >=
            window)
      break;
    if (!planned && now_s - planned_s_ >= kLeastReplanSeconds) Replan(now_s);
    planned = true;
    const std::optional<BlockRef> block = policy_->NextBlock(View(now_s), plan_);
    if (!block.has_value()) break;
    order(*block);
  }
  link_.SetBusy(now_s, under_way_count_ > 0);
  return picked;
}

void LoadController::Forget(uint32_t t, uint32_t l) {
  const size_t i = size_t{t} * problem_.layers + l;
  if (!under_way_[i]) return;
  under_way_[i] = false;
  under_way_bytes_ -= static_cast<double>(problem_.bytes(t, l));
  if (--under_way_count_ == 0) under_way_bytes_ = 0;
}

bool LoadController::ClaimForDecode(double now_s, uint32_t t, uint32_t l) {
  Forget(t, l);
  whole_received_ = received_;
  link_.SetBusy(now_s, under_way_count_ > 0);
  return state_.ClaimForDecode(t, l);
}

void LoadController::FinishDecode(uint32_t t, uint32_t l, bool ok) {
  if (ok && !PlannedForStream(t, l)) ++migrations_.to_stream;
  if (!ok && l < state_.closed(t)) MarkFailed(t, l);
  state_.FinishDecode(t, l, ok);
}

void LoadController::MarkFailed(uint32_t t, uint32_t l) {
  const size_t i = size_t{t} * problem_.layers + l;
  failed_[i] = true;
  problem_.block_bytes[i] = 0;
}

void LoadController::FailBlock(double now_s, uint32_t t, uint32_t l) {
  if (!state_.Wanted(t, l)) return;
  Forget(t, l);
  MarkFailed(t, l);
  link_.SetBusy(now_s, under_way_count_ > 0);
  state_.MustCompute(t, l);
}

void LoadController::EndStream(double now_s) {
  if (!streaming_) return;
  streaming_ = false;
  link_.SetBusy(now_s, false);
  for (uint32_t t = 0; t < problem_.columns(); ++t) {
    for (uint32_t l = 0; l < problem_.layers; ++l) {
      if (state_.block(t, l) == BlockState::kMissing)
        failed_[size_t{t} * problem_.layers + l] = true;
    }
  }
  under_way_.assign(under_way_.size(), false);
  under_way_bytes_ = 0;
  under_way_count_ = 0;
  state_.ComputeAll();
}

void LoadController::SetBytes(const BlockRef& block, uint64_t bytes) {
  uint64_t& of_block = problem_.block_bytes[size_t{block.column} * problem_.layers + block.layer];
  if (UnderWay(block))
    under_way_bytes_ += static_cast<double>(bytes) - static_cast<double>(of_block);
  of_block = bytes;
}

bool LoadController::WaitsForStream() const {
  for (uint32_t t = 0; t < problem_.columns(); ++t) {
    for (uint32_t l = state_.depth(t); l < problem_.layers; ++l) {
      if (state_.block(t, l) == BlockState::kMissing) return true;
    }
  }
  return false;
}

std::optional<ComputeOp> LoadController::PickOp(double now_s) {
  Tick(now_s);
  std::optional<ComputeOp> op = state_.NextOp();
  if (!op.has_value() && streaming_) {
    const std::optional<BlockRef> stolen = policy_->Steal(View(now_s), plan_);
    if (stolen.has_value()) {
      stolen_[size_t{stolen->column} * problem_.layers + stolen->layer] = true;
      const uint32_t depth = problem_.whole_columns ? problem_.layers : stolen->layer + 1;
      state_.SetDepth(stolen->column, std::max(depth, state_.depth(stolen->column)));
      op = state_.NextOp();
    }
  }
  if (!op.has_value()) return op;
  running_ = op;
  running_since_s_ = now_s;
  running_share_ = 0;
  running_alone_s_ = OpSeconds(problem_, *op) / problem_.slowdown;
  if (op->kind == ComputeOp::Kind::kProject) {
    const bool above = state_.rules().whole_columns && op->layer > 0;
    const uint32_t end = above ? problem_.layers : op->layer + 1;
    for (uint32_t l = op->layer; l < end; ++l) {
      if (!under_way_[size_t{op->column} * problem_.layers + l]) continue;
      Forget(op->column, l);
      cancelled_.push_back({op->column, l});
      ++migrations_.cancelled;
    }
    link_.SetBusy(now_s, under_way_count_ > 0);
  }
  return op;
}

std::vector<BlockRef> LoadController::TakeCancelled() {
  std::vector<BlockRef> taken;
  taken.swap(cancelled_);
  return taken;
}

void LoadController::Measure(double predicted_s, double measured_s) {
  if (predicted_s <= 0 || measured_s <= 0) return;
  const double weight = 1 - std::exp(-measured_s / kSlowdownSeconds);
  const double ratio = std::clamp(measured_s / predicted_s, 0.01, 100.0);
  problem_.slowdown += weight * (ratio - problem_.slowdown);
}

void LoadController::Progress(double now_s, double share) {
  if (!running_.has_value() || share <= running_share_) return;
  Measure(running_alone_s_ * (share - running_share_), now_s - running_since_s_);
  running_share_ = share;
  running_since_s_ = now_s;
}

void LoadController::FinishOp(double now_s, const ComputeOp& op) {
  Progress(now_s, 1);
  running_.reset();
  if (op.kind == ComputeOp::Kind::kProject && PlannedForStream(op.column, op.layer)) {
    const size_t i = size_t{op.column} * problem_.layers + op.layer;
    if (failed_[i]) {
      ++migrations_.to_compute_failed;
    } else if (stolen_[i]) {
      ++migrations_.to_compute_idle;
    } else {
      ++migrations_.to_compute_slow_link;
    }
  }
  state_.Finish(op);
}

void LoadController::FailFinal(const ComputeOp& op) {
  running_.reset();
  MarkFailed(op.column, op.layer);
  state_.FailFinal(op.column, op.layer);
}

}  // namespace sparkv
