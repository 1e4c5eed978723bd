#include "common/codec/enc_transform.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "kernels/gguf_dequant.h"
#include "kernels/gguf_gemm.h"

namespace sparkv {

absl::StatusOr<std::vector<double>> InvertMatrix(std::vector<double> matrix, uint32_t n) {
  std::vector<double> inverse(size_t{n} * n);
  for (uint32_t i = 0; i < n; ++i) inverse[size_t{i} * n + i] = 1;
  const auto row = [n](std::vector<double>& m, uint32_t r) { return m.begin() + size_t{r} * n; };
  for (uint32_t c = 0; c < n; ++c) {
    uint32_t pivot = c;
    for (uint32_t r = c + 1; r < n; ++r) {
      if (std::abs(matrix[size_t{r} * n + c]) > std::abs(matrix[size_t{pivot} * n + c])) pivot = r;
    }
    const double value = matrix[size_t{pivot} * n + c];
    if (!(std::abs(value) > 0) || !std::isfinite(value)) {
      return absl::InvalidArgumentError(absl::StrCat("a transform of ", n, " values is singular"));
    }
    if (pivot != c) {
      std::swap_ranges(row(matrix, c), row(matrix, c) + n, row(matrix, pivot));
      std::swap_ranges(row(inverse, c), row(inverse, c) + n, row(inverse, pivot));
    }
    for (uint32_t j = 0; j < n; ++j) {
      matrix[size_t{c} * n + j] /= value;
      inverse[size_t{c} * n + j] /= value;
    }
    for (uint32_t r = 0; r < n; ++r) {
      const double factor = matrix[size_t{r} * n + c];
      if (r == c || factor == 0) continue;
      for (uint32_t j = 0; j < n; ++j) {
        matrix[size_t{r} * n + j] -= factor * matrix[size_t{c} * n + j];
        inverse[size_t{r} * n + j] -= factor * inverse[size_t{c} * n + j];
      }
    }
  }
  return inverse;
}

absl::StatusOr<ForwardMatrices> ForwardTransforms(const CodecProfile& profile) {
  const ProfileShape& s = profile.shape();
  const uint32_t n = s.group;
  ForwardMatrices out;
  std::vector<float> dense(n);
  for (uint32_t l = 1; l < s.geometry.layers; ++l) {
    out.emplace_back();
    for (const ProfileMatrix& m : profile.layer(l).inverse) {
      std::vector<double> values(size_t{n} * n);
      for (uint32_t r = 0; r < n; ++r) {
        RETURN_IF_ERROR(
            kernels::DequantizeRow(m.type, m.data + size_t{r} * (n / 32) * 34, dense.data(), n));
        std::copy(dense.begin(), dense.end(), values.begin() + size_t{r} * n);
      }
      absl::StatusOr<std::vector<double>> inverse = InvertMatrix(std::move(values), n);
      if (!inverse.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("profile layer ", l, ": ", inverse.status().message()));
      }
      out.back().emplace_back(inverse->begin(), inverse->end());
    }
  }
  return out;
}

void ApplyForward(const std::vector<float>& matrix, uint32_t group, const float* x, size_t ldx,
                  uint32_t n, float* y, std::vector<float>* scratch) {
  scratch->resize(
      std::max(scratch->size(), kernels::GemmScratchFloats(kernels::GgmlType::kF32, group)));
  const kernels::GemmArgs args{.type = kernels::GgmlType::kF32,
                               .w = matrix.data(),
                               .columns = group,
                               .k = group,
                               .x = x,
                               .ldx = ldx,
                               .m = n,
                               .y = y,
                               .ldy = group};
  (void)kernels::GgufGemm(args, 0, group, scratch->data());  // a checked profile's: no error left
}

}  // namespace sparkv
