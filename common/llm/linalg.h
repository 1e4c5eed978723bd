// Dense linear algebra in f64, by LibTorch (LAPACK). Matrices are row-major. Thread rule and errors
// as of torch_math.h; InvalidArgument where a decomposition fails.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sparkv::linalg {

struct Eigen {
  std::vector<double> values;   // [n] ascending
  std::vector<double> vectors;  // [n][n], column j belongs to values[j]
};
// Of a symmetric n x n matrix.
absl::StatusOr<Eigen> SymmetricEigen(std::span<const double> matrix, size_t n);

// X of A X = B: A symmetric positive definite [n][n], B [n][m].
absl::StatusOr<std::vector<double>> SolveSpd(std::span<const double> a, size_t n,
                                             std::span<const double> b, size_t m);

// A B: [n][k] times [k][m].
std::vector<double> Multiply(std::span<const double> a, std::span<const double> b, size_t n,
                             size_t k, size_t m);
std::vector<double> Transpose(std::span<const double> a, size_t rows, size_t cols);

// sum [p][q] += x^T y with x [n][p], y [n][q] in f32; products are summed in f32 over at most 512
// rows.
absl::Status AddGram(const float* x, size_t p, const float* y, size_t q, size_t n, double* sum);

}  // namespace sparkv::linalg
