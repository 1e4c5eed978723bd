// The forward transforms of a profile.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/codec/profile.h"

namespace sparkv {

// The inverse of an n x n matrix, row-major, by Gauss-Jordan elimination with row pivoting.
// InvalidArgument when it is singular. The same bits on one build.
absl::StatusOr<std::vector<double>> InvertMatrix(std::vector<double> matrix, uint32_t n);

// Inverses of a profile's inverse transforms, [layers - 1][2 * groups] of f32 [group][group].
using ForwardMatrices = std::vector<std::vector<std::vector<float>>>;
absl::StatusOr<ForwardMatrices> ForwardTransforms(const CodecProfile& profile);

// y [n][group] = x [n][ldx] times one of them, transposed. scratch: as of TransformScratch.
void ApplyForward(const std::vector<float>& matrix, uint32_t group, const float* x, size_t ldx,
                  uint32_t n, float* y, std::vector<float>* scratch);

}  // namespace sparkv
