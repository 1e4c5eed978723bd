#include "common/llm/linalg.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cholesky_solve.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_cholesky.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <exception>
#include <string>

namespace sparkv::linalg {
namespace {

at::Tensor View(std::span<const double> data, size_t rows, size_t cols) {
  return at::from_blob(const_cast<double*>(data.data()),
                       {static_cast<int64_t>(rows), static_cast<int64_t>(cols)},
                       at::TensorOptions(at::kDouble));
}

std::vector<double> Copy(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  const double* data = dense.const_data_ptr<double>();
  return {data, data + dense.numel()};
}

template <typename Fn>
absl::Status Guarded(const char* what, Fn fn) {
  try {
    c10::InferenceMode inference;
    fn();
    return absl::OkStatus();
  } catch (const std::exception& e) {
    const std::string text = e.what();
    return absl::InvalidArgumentError(std::string(what) + ": " + text.substr(0, text.find('\n')));
  }
}

}  // namespace

absl::StatusOr<Eigen> SymmetricEigen(std::span<const double> matrix, size_t n) {
  Eigen out;
  const absl::Status status = Guarded("eigen-decomposition", [&] {
    const auto [values, vectors] = at::linalg_eigh(View(matrix, n, n));
    out.values = Copy(values);
    out.vectors = Copy(vectors);
  });
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<std::vector<double>> SolveSpd(std::span<const double> a, size_t n,
                                             std::span<const double> b, size_t m) {
  std::vector<double> out;
  const absl::Status status = Guarded("Cholesky decomposition", [&] {
    out = Copy(at::cholesky_solve(View(b, n, m), at::linalg_cholesky(View(a, n, n))));
  });
  if (!status.ok()) return status;
  return out;
}

std::vector<double> Multiply(std::span<const double> a, std::span<const double> b, size_t n,
                             size_t k, size_t m) {
  c10::InferenceMode inference;
  return Copy(at::mm(View(a, n, k), View(b, k, m)));
}

std::vector<double> Transpose(std::span<const double> a, size_t rows, size_t cols) {
  std::vector<double> out(a.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) out[c * rows + r] = a[r * cols + c];
  }
  return out;
}

absl::Status AddGram(const float* x, size_t p, const float* y, size_t q, size_t n, double* sum) {
  constexpr size_t kRows = 512;
  return Guarded("sum of products", [&] {
    for (size_t at = 0; at < n; at += kRows) {
      const auto rows = static_cast<int64_t>(std::min(kRows, n - at));
      const auto view = [rows](const float* data, size_t cols) {
        return at::from_blob(const_cast<float*>(data), {rows, static_cast<int64_t>(cols)},
                             at::TensorOptions(at::kFloat));
      };
      const at::Tensor product = at::mm(view(x + at * p, p).t(), view(y + at * q, q)).contiguous();
      const float* data = product.const_data_ptr<float>();
      for (size_t i = 0; i < p * q; ++i) sum[i] += data[i];
    }
  });
}

}  // namespace sparkv::linalg
