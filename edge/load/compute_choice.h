// What idle compute takes from the stream.
#pragma once

#include <optional>

#include "edge/load/policy.h"

namespace sparkv {

// The gap that saves the link most, if compute can begin at once and is through well before the
// stream would bring it: the largest `wait - 1.5 cost` of all columns, where wait is until the
// missing bytes up to it are here, lowest layers first. nullopt: waiting is better.
std::optional<BlockRef> ChooseSteal(const LoadView& view);

}  // namespace sparkv
