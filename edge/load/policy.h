// Loading policies behind one interface; each is one file. A policy plans at the start, and is then
// asked at every choice of the link and whenever a plan may be out of date. The same objects run in
// the daemon and in the simulator: they see no thread, clock or socket.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "edge/load/load_state.h"
#include "edge/load/plan.h"

namespace sparkv {

// A load under way. `problem` holds the link's rate and the device's slowdown as measured now.
struct LoadView {
  LoadView(const LoadProblem& problem, const LoadState& state, const std::vector<bool>& under_way)
      : problem(problem), state(state), under_way(under_way) {}

  const LoadProblem& problem;
  const LoadState& state;
  const std::vector<bool>& under_way;  // [columns][layers] ordered from the stream, not yet here
  double under_way_bytes = 0;          // of them still to come
  bool streaming = true;               // the stream may still bring something
  double now_s = 0;                    // since the load began
  // What compute does now, and how long it will take yet; its effects are not in `state`.
  std::optional<ComputeOp> running;
  double running_left_s = 0;

  bool UnderWay(uint32_t t, uint32_t l) const { return under_way[size_t{t} * problem.layers + l]; }
  // Missing here, and the stream may bring it.
  bool Orderable(uint32_t t, uint32_t l) const {
    return state.Wanted(t, l) && !UnderWay(t, l) && problem.bytes(t, l) > 0;
  }
  // hidden_depth when `running` is done.
  uint32_t HiddenDepth(uint32_t t) const {
    const bool attends =
        running.has_value() && running->kind == ComputeOp::Kind::kAttend && running->column == t;
    return state.hidden_depth(t) + (attends ? 1 : 0);
  }
};

// One object for each load, used by one thread at a time.
class LoadPolicy {
 public:
  virtual ~LoadPolicy() = default;
  virtual const char* name() const = 0;
  virtual LoadPlan Plan(const LoadProblem& problem) = 0;
  // Before a choice of the link, and at least ten times a second: may change the plan's depths and
  // its prediction. The default keeps the plan.
  virtual void Replan(const LoadView& /*view*/, LoadPlan* /*plan*/) {}
  // What the link should bring next, an orderable block; nullopt: nothing. The default is the first
  // of plan.order.
  virtual std::optional<BlockRef> NextBlock(const LoadView& view, const LoadPlan& plan);
  // Compute has nothing to do: the block that it should compute, with all it takes to get there.
  // nullopt, the default: it waits.
  virtual std::optional<BlockRef> Steal(const LoadView& /*view*/, const LoadPlan& /*plan*/) {
    return std::nullopt;
  }

 private:
  size_t first_ = 0;  // of plan.order; what is before is not wanted any more
};

std::unique_ptr<LoadPolicy> MakeSparkvPolicy();  // D-profile plan, query pipelined, work-conserving
std::unique_ptr<LoadPolicy> MakeSparkvPaperPolicy();  // the paper's greedy stages and migration
std::unique_ptr<LoadPolicy> MakeStreamPolicy();       // everything streamed, layer by layer
std::unique_ptr<LoadPolicy> MakeLocalPolicy();        // everything computed
// Computed from the first column, streamed from the last, until they meet. With `pipelined` the
// query follows layer by layer, which Cake as published does not do.
std::unique_ptr<LoadPolicy> MakeCakePolicy(bool pipelined = false);
// The depths of `sparkv`'s first plan, kept whatever happens.
std::unique_ptr<LoadPolicy> MakeStaticPolicy();
// Given depths, one for each column (missing ones are 0): for tests and experiments.
std::unique_ptr<LoadPolicy> MakeGivenPolicy(std::vector<uint32_t> depth);

// By name: sparkv, sparkv-paper, cake, stream, local, static. InvalidArgument lists them.
absl::StatusOr<std::unique_ptr<LoadPolicy>> MakePolicy(std::string_view name);

// Blocks at or above the depths, lowest layer first, columns ascending within a layer: the order in
// which QUERY needs them.
std::vector<BlockRef> LayerMajorOrder(const LoadProblem& problem,
                                      const std::vector<uint32_t>& depth);

}  // namespace sparkv
