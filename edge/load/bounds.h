// Lower bounds of a load's time to first token.
#pragma once

#include "edge/load/plan.h"
#include "edge/load/rate_curve.h"

namespace sparkv {

// No load of this problem is shorter, whatever its policy: the least, over fractional depths and
// without dependencies, of max(rtt + R/r + the last QUERY, computed + FINAL + QUERY + decoding of
// R) (design: sorted steps of all columns' concave hulls, one chain).
double LowerBound(const LoadProblem& problem);

// The same with a link and a device that change as these say, known beforehand: the clairvoyant
// bound. The problem's link rate and slowdown are not used.
double LowerBound(const LoadProblem& problem, const RateCurve& link, const RateCurve& speed);

}  // namespace sparkv
