// Linear transforms that spend few bits where errors matter little. Matrices are row-major.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace sparkv {

using Matrix64 = std::vector<double>;

double Trace(std::span<const double> a, size_t n);

struct FittedTransform {
  Matrix64 forward, inverse;  // [n][n]
};

// y = U^T W^1/2 x for x with covariance `residual` [n][n] and errors weighed by `weight` W [n][n],
// U the eigenvectors of the weighted covariance: components are uncorrelated, come by falling
// variance, and an error of one unit in any of them weighs the same. Errors as of
// linalg::SymmetricEigen.
absl::StatusOr<FittedTransform> FitTransform(std::span<const double> weight,
                                             std::span<const double> residual, size_t n);

// The `rank` linear functions of an input with covariance `sigma` that lose least of what `gram` =
// P^T W P weighs, [rank][n]: principal components of the weighted prediction, scaled to unit
// variance.
absl::StatusOr<Matrix64> BestInputs(std::span<const double> sigma, std::span<const double> gram,
                                    size_t n, size_t rank);

}  // namespace sparkv
