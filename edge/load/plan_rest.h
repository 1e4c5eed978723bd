// The best depths from the middle of a load: what is missing goes to the link or to the device, at
// the rates of both now.
#pragma once

#include <cstdint>
#include <vector>

#include "edge/load/policy.h"

namespace sparkv {

struct RestPlan {
  // [columns] missing layers below are computed, the others streamed.
  std::vector<uint32_t> depth;
  double left_s = 0;  // from now to the first token
};

// For each column, its gaps m_1 < m_2 < ... are the missing layers. Computing the first j of them
// takes K_j = their PROJ and ATTN of all layers from the column's hidden rows up to m_j (streamed
// layers are passed through), less their FINAL, and saves the link their bytes B_j. The upper
// concave hull of (K_j, B_j) gives steps; all steps in order of bytes per second are one chain that
// is best for every ratio of link to device, and a walk along it finds
//   min over the chain of max( rtt + R/r + decode and FINAL of one block + the last QUERY,
//                              running + K + FINAL of what is streamed + QUERY + decoding of R )
// O(n log n) for n missing blocks.
RestPlan PlanRest(const LoadView& view);

}  // namespace sparkv
