// The best depth profile of a small load, by dynamic programming.
#pragma once

#include <cstdint>
#include <vector>

#include "edge/load/plan.h"

namespace sparkv {

// Whether BestDepths is cheap (well below a millisecond) for this problem.
bool BestDepthsFits(const LoadProblem& problem);

// Replaces *depth, an allowed profile that never grows along the context and is at least 1, by the
// best such profile, and returns its seconds. Of the partial profiles that are Pareto-optimal in
// (computed, left) at most some hundred are kept for each column and depth, so the result is exact
// while there are no more.
double BestDepths(const LoadProblem& problem, const BusyTime& seconds,
                  std::vector<uint32_t>* depth);

}  // namespace sparkv
