// Loading policies behind one interface; each is one file. Pure functions of the problem.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "edge/load/plan.h"

namespace sparkv {

class LoadPolicy {
 public:
  virtual ~LoadPolicy() = default;
  virtual const char* name() const = 0;
  virtual LoadPlan Plan(const LoadProblem& problem) const = 0;
};

std::unique_ptr<LoadPolicy> MakeSparkvPolicy();  // D-profile plan, query pipelined, work-conserving
std::unique_ptr<LoadPolicy> MakeStreamPolicy();  // everything streamed, layer by layer
std::unique_ptr<LoadPolicy> MakeLocalPolicy();   // everything computed
std::unique_ptr<LoadPolicy>
MakeCakePolicy();  // computed from the first column, streamed from the last, until they meet
// Given depths, one for each column (missing ones are 0): for tests and experiments.
std::unique_ptr<LoadPolicy> MakeStaticPolicy(std::vector<uint32_t> depth);

// By name: sparkv, stream, local, cake. InvalidArgument lists them.
absl::StatusOr<std::unique_ptr<LoadPolicy>> MakePolicy(const std::string& name);

// Blocks at or above the depths, lowest layer first, columns ascending within a layer: the order in
// which QUERY needs them.
std::vector<BlockRef> LayerMajorOrder(const LoadProblem& problem,
                                      const std::vector<uint32_t>& depth);

}  // namespace sparkv
