#include "kernels/gguf_dequant.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "kernels/cpu_features.h"
#include "kernels/gguf_dequant_cpu.h"

namespace sparkv::kernels {
namespace {

constexpr std::array<GgmlTypeInfo, 13> kTypes = {{
    {GgmlType::kF32, "F32", 1, 4},
    {GgmlType::kF16, "F16", 1, 2},
    {GgmlType::kBF16, "BF16", 1, 2},
    {GgmlType::kQ4_0, "Q4_0", 32, 18},
    {GgmlType::kQ4_1, "Q4_1", 32, 20},
    {GgmlType::kQ5_0, "Q5_0", 32, 22},
    {GgmlType::kQ5_1, "Q5_1", 32, 24},
    {GgmlType::kQ8_0, "Q8_0", 32, 34},
    {GgmlType::kQ2_K, "Q2_K", 256, 84},
    {GgmlType::kQ3_K, "Q3_K", 256, 110},
    {GgmlType::kQ4_K, "Q4_K", 256, 144},
    {GgmlType::kQ5_K, "Q5_K", 256, 176},
    {GgmlType::kQ6_K, "Q6_K", 256, 210},
}};

absl::Status CheckRow(GgmlType type, size_t n) {
  const GgmlTypeInfo* info = FindGgmlType(static_cast<uint32_t>(type));
  if (info == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("tensor type ", static_cast<uint32_t>(type), " is not supported"));
  }
  if (n % info->block_values != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a row of ", n, " values of type ", info->name,
                                                   ", allowed: multiples of ", info->block_values));
  }
  return absl::OkStatus();
}

}  // namespace

const GgmlTypeInfo* FindGgmlType(uint32_t type) {
  for (const GgmlTypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == type) return &info;
  }
  return nullptr;
}

absl::Status DequantizeRowScalar(GgmlType type, const void* src, float* dst, size_t n) {
  const absl::Status status = CheckRow(type, n);
  if (status.ok()) internal::DequantizeScalar(type, static_cast<const uint8_t*>(src), dst, n);
  return status;
}

absl::Status DequantizeRow(GgmlType type, const void* src, float* dst, size_t n) {
  const absl::Status status = CheckRow(type, n);
  if (!status.ok()) return status;
  const auto* bytes = static_cast<const uint8_t*>(src);
  if (HasAvx2() && internal::DequantizeAvx2(type, bytes, dst, n)) return status;
  internal::DequantizeScalar(type, bytes, dst, n);
  return status;
}

}  // namespace sparkv::kernels
