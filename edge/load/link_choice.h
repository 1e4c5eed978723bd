// What the link should bring next under a plan of depths.
#pragma once

#include <optional>
#include <vector>

#include "edge/load/policy.h"

namespace sparkv {

// Bytes of a column for a second of its compute: what decides, where all else is equal, which
// column to stream. The columns with little of both first is the wrong way round to compute.
std::vector<double> ColumnWorth(const LoadProblem& problem);

// The next block for the link; nullopt: nothing can be ordered. `target_s` is when the first token
// is wanted, in view.now_s's time.
//
// Each block that the plan streams has a deadline: QUERY of its layer, less the FINAL of all layers
// from it up, and ATTN of later columns that reads it, as planned. While the order of deadlines
// (EDF) leaves slack, the link brings the blocks that compute would take last: the top layer of the
// column with the least bytes per second of compute ("flex"), so that what is left when the link or
// the device changes is what either of them can take. Without slack it brings the blocks up to the
// first deadline that would be missed, by the same rule among them; when compute has next to
// nothing left to do, the earliest deadline. When all that the plan streams is on its way, the link
// goes on with what compute would reach last.
std::optional<BlockRef> ChooseBlock(const LoadView& view, const std::vector<double>& worth, double target_s);

}  // namespace sparkv
