// The decisions of one load: what the link brings next, what compute does next, and when the plan
// is made anew. It sees no thread, clock or socket: the daemon's loader and the simulator drive the
// same object with the same calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "edge/load/link_estimate.h"
#include "edge/load/load_state.h"
#include "edge/load/plan.h"
#include "edge/load/policy.h"

namespace sparkv {

// Why blocks went to the other path than the first plan's.
struct Migrations {
  uint32_t to_compute_slow_link = 0;  // planned for the stream, computed: the link was slower
  uint32_t to_compute_idle = 0;       // likewise: compute had nothing else to do
  uint32_t to_compute_failed = 0;     // likewise: the stream could not bring them
  uint32_t to_stream = 0;             // planned for compute, streamed
  uint32_t cancelled = 0;             // ordered blocks that compute took before they came
  uint32_t replans = 0;               // plans made after the first
};

// Times are seconds since the load began. One thread at a time.
class LoadController {
 public:
  // `policy` must outlive it.
  LoadController(const LoadProblem& problem, LoadPolicy* policy, const CodecRules& rules);

  const LoadState& state() const { return state_; }
  const LoadPlan& first_plan() const { return first_plan_; }
  const LoadPlan& plan() const { return plan_; }
  const LoadProblem& problem() const { return problem_; }  // with the rates of now
  const Migrations& migrations() const { return migrations_; }
  bool done() const { return state_.done(); }

  // Link ---------------------------------------------------------------------------------------
  void StartStream(double now_s);
  bool streaming() const { return streaming_; }
  // `bytes` of items came since the stream began.
  void OnBytes(double now_s, uint64_t bytes);
  // Blocks to order now, in this order, so that the link has enough to do and no more: one
  // bandwidth-delay product or kLeastBlocks, whichever is more. Blocks of kHeldBytes are here
  // already and are ordered at once.
  std::vector<BlockRef> PickBlocks(double now_s);
  // All planes of a block are here. False: it is not wanted (any more).
  bool ClaimForDecode(double now_s, uint32_t t, uint32_t l);
  void FinishDecode(uint32_t t, uint32_t l, bool ok);
  // The stream cannot bring this block.
  void FailBlock(double now_s, uint32_t t, uint32_t l);
  // The stream brings nothing more: the rest is computed.
  void EndStream(double now_s);
  bool UnderWay(const BlockRef& block) const {
    return under_way_[size_t{block.column} * problem_.layers + block.layer];
  }
  // The block will come at another level.
  void SetBytes(const BlockRef& block, uint64_t bytes);
  // There is no stream.
  void ComputeAll() { state_.ComputeAll(); }
  // A block that the stream still owes, and compute will not make.
  bool WaitsForStream() const;
  double BytesPerSecond(double now_s) const { return link_.BytesPerSecond(now_s); }

  // Compute ------------------------------------------------------------------------------------
  // What to do next; nullopt: nothing until something comes. Claims its block.
  std::optional<ComputeOp> PickOp(double now_s);
  // Ordered blocks that compute has taken since the last call, with those above them where columns
  // are whole: the stream need not bring them.
  std::vector<BlockRef> TakeCancelled();
  // `share` of the op of PickOp is done.
  void Progress(double now_s, double share);
  void FinishOp(double now_s, const ComputeOp& op);
  void FailFinal(const ComputeOp& op);

  // At least ten times a second: plans anew when that is due.
  void Tick(double now_s);

  static constexpr double kReplanSeconds = 0.1;
  static constexpr uint32_t kLeastBlocks = 2;  // under way at least
  static constexpr uint64_t kHeldBytes = 1;

 private:
  LoadView View(double now_s) const;
  void Replan(double now_s);
  void Forget(uint32_t t, uint32_t l);      // no longer under way
  void MarkFailed(uint32_t t, uint32_t l);  // the stream cannot bring it
  void Measure(double predicted_s, double measured_s);
  bool PlannedForStream(uint32_t t, uint32_t l) const { return l >= first_plan_.depth[t]; }

  LoadProblem problem_;
  LoadPolicy* const policy_;
  const LoadPlan first_plan_;
  LoadPlan plan_;
  LoadState state_;
  LinkEstimate link_;
  bool streaming_ = false;
  std::vector<bool> under_way_;
  double under_way_bytes_ = 0;  // of whole blocks
  uint32_t under_way_count_ = 0;
  bool held_ordered_ = false;
  BlockRef last_;                // ordered
  uint64_t received_ = 0;        // bytes
  uint64_t whole_received_ = 0;  // received_ when the last block was complete
  double planned_s_ = 0;         // when the plan was made
  std::optional<ComputeOp> running_;
  double running_alone_s_ = 0;  // of the whole op, without slowdown
  double running_since_s_ = 0;  // when running_share_ of it was done
  double running_share_ = 0;
  std::vector<BlockRef> cancelled_;
  std::vector<bool> stolen_, failed_;  // [columns][layers]
  Migrations migrations_;
};

}  // namespace sparkv
