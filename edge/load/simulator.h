// Simulates loads: a link with a rate trace, delay and jitter, a device with costs and a trace of
// its speed, and the very controller and policies that the daemon runs. Deterministic, without
// threads; simulated seconds cost microseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "edge/load/controller.h"
#include "edge/load/plan.h"
#include "edge/load/policy.h"
#include "edge/load/rate_curve.h"

namespace sparkv {

struct SimulatedWorld {
  LoadProblem truth;      // costs as they are; its link rate is not used
  RateCurve link;         // bytes/s over time
  RateCurve speed{1.0};   // of the device; 1: as the costs say
  double rtt_s = 0;
  double jitter_s = 0;    // uniform in [0, jitter] on top of each block's delay, order kept
  uint64_t seed = 1;
  double link_ends_s = 1e18;  // then the stream breaks, and the edge is told
  CodecRules rules;
};

struct SimulatedEvent {
  enum class Kind : uint8_t { kOrdered, kCancelled, kArrived, kDecoded, kBegan, kEnded };
  Kind kind;
  double at_s;
  BlockRef block;                          // kOrdered, kCancelled, kArrived, kDecoded
  ComputeOp op{ComputeOp::Kind::kQuery, 0, 0};  // kBegan, kEnded
};

struct SimulatedLoad {
  double ttft_s = 0;          // of all layers of the query, or of all blocks without one
  double link_busy_s = 0;
  double compute_busy_s = 0;  // of ops
  double compute_idle_s = 0;
  uint64_t bytes = 0;         // sent by the server
  uint32_t streamed = 0, computed = 0;  // blocks
  double most_under_way = 0;  // bytes
  Migrations migrations;
  LoadPlan first_plan;
  std::vector<SimulatedEvent> events;  // in time
};

// `problem` is what the planner believes at the start; `world` is how it is. DeadlineExceeded: no
// end within 1e5 simulated seconds. Internal: the controller broke a rule of the load.
absl::StatusOr<SimulatedLoad> SimulateLoad(const LoadProblem& problem, LoadPolicy* policy,
                                           const SimulatedWorld& world);

}  // namespace sparkv
