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
absl::StatusOr<std::vector<std::vector<std::vector<float>>>> ForwardTransforms(
    const CodecProfile& profile);

}  // namespace sparkv
