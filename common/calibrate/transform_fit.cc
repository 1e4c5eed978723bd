#include "common/calibrate/transform_fit.h"

#include <algorithm>
#include <cmath>

#include "common/base/status.h"
#include "common/llm/linalg.h"

namespace sparkv {
namespace {

constexpr double kWeightFloor = 1e-2;  // of a weight's mean eigenvalue

struct Roots {
  Matrix64 root, inverse;  // A^1/2, A^-1/2
};
absl::StatusOr<Roots> SquareRoots(std::span<const double> a, size_t n, double floor) {
  ASSIGN_OR_RETURN(const linalg::Eigen e, linalg::SymmetricEigen(a, n));
  const double add = floor * Trace(a, n) / static_cast<double>(n);
  Matrix64 left(n * n), right(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      const double value = std::sqrt(std::max(e.values[j], 0.0) + add + 1e-30);
      left[i * n + j] = e.vectors[i * n + j] * value;
      right[i * n + j] = e.vectors[i * n + j] / value;
    }
  }
  const Matrix64 transposed = linalg::Transpose(e.vectors, n, n);
  return Roots{linalg::Multiply(left, transposed, n, n, n),
               linalg::Multiply(right, transposed, n, n, n)};
}

}  // namespace

double Trace(std::span<const double> a, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += a[i * n + i];
  return sum;
}

absl::StatusOr<FittedTransform> FitTransform(std::span<const double> weight,
                                             std::span<const double> residual, size_t n) {
  ASSIGN_OR_RETURN(const Roots w, SquareRoots(weight, n, kWeightFloor));
  ASSIGN_OR_RETURN(
      const linalg::Eigen e,
      linalg::SymmetricEigen(
          linalg::Multiply(linalg::Multiply(w.root, residual, n, n, n), w.root, n, n, n), n));
  Matrix64 u(n * n);  // columns by falling variance
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) u[i * n + j] = e.vectors[i * n + n - 1 - j];
  }
  return FittedTransform{linalg::Multiply(linalg::Transpose(u, n, n), w.root, n, n, n),
                         linalg::Multiply(w.inverse, u, n, n, n)};
}

absl::StatusOr<Matrix64> BestInputs(std::span<const double> sigma, std::span<const double> gram,
                                    size_t n, size_t rank) {
  ASSIGN_OR_RETURN(const Roots roots, SquareRoots(sigma, n, 1e-6));
  const Matrix64 weighted =
      linalg::Multiply(linalg::Multiply(roots.root, gram, n, n, n), roots.root, n, n, n);
  ASSIGN_OR_RETURN(const linalg::Eigen e, linalg::SymmetricEigen(weighted, n));
  Matrix64 top(rank * n);
  for (size_t r = 0; r < rank; ++r) {
    for (size_t i = 0; i < n; ++i) top[r * n + i] = e.vectors[i * n + (n - 1 - r)];
  }
  return linalg::Multiply(top, roots.inverse, rank, n, n);
}

}  // namespace sparkv
