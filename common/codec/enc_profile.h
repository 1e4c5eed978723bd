// Writes model profiles, FORMAT.md section 5.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/codec/profile.h"

namespace sparkv {

// The content of a profile, matrices as rows of their type.
struct ProfileContent {
  ProfileShape shape;
  std::string token;                  // Q8_0 [rank_token][d_model]
  std::vector<uint32_t> frequencies;  // [kProfileTables][kProfileSymbols]
  struct Layer {
    std::vector<float> offset;
    std::string below, predict;
    std::string inverse;  // Q8_0, [2 * groups][group][group]
    std::vector<uint8_t> table;
  };
  std::vector<Layer> layers;  // of layers 1, 2, ...
};

// The bytes of a profile. InvalidArgument when the content does not fit its shape.
absl::StatusOr<std::string> WriteProfile(const ProfileContent& content);

// The same profile with another step.
absl::StatusOr<std::string> WithStep(const CodecProfile& profile, float step);

// Rows of f32 [rows][cols] as Q8_0 or Q4_0, cols a multiple of 32.
std::string QuantizeRows(kernels::GgmlType type, std::span<const float> values);

}  // namespace sparkv
