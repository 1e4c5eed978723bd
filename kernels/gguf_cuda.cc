#include "kernels/gguf_cuda.h"

#include "kernels/cuda_status.h"

namespace sparkv::kernels {
namespace {

constexpr size_t kMaxValues = size_t{1} << 38;

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("weights on CUDA: ", parts...));
}

absl::Status Check(GgmlType type, const void* w, const char* name, size_t values) {
  const GgmlTypeInfo* const info = FindGgmlType(static_cast<uint32_t>(type));
  switch (type) {
    case GgmlType::kQ4_0:
    case GgmlType::kQ4_1:
    case GgmlType::kQ8_0:
    case GgmlType::kQ4_K:
    case GgmlType::kQ6_K:
      break;
    default:
      return absl::UnimplementedError(
          absl::StrCat("weights on CUDA: type ", static_cast<uint32_t>(type),
                       "; there are kernels for Q4_0, Q4_1, Q8_0, Q4_K and Q6_K"));
  }
  if (values % info->block_values != 0)
    return Bad(name, " is ", values, ", no multiple of ", info->block_values, " (", info->name,
               ")");
  if (values > kMaxValues) return Bad(name, " is ", values, ", at most ", kMaxValues);
  if (values > 0 && w == nullptr) return Bad("w is null");
  if (reinterpret_cast<uintptr_t>(w) % 2 != 0) return Bad("w is at an odd address");
  return absl::OkStatus();
}

}  // namespace

absl::Status GgufToHalfCuda(GgmlType type, const void* w, size_t values, uint16_t* out,
                            [[maybe_unused]] CudaStream stream) {
  if (absl::Status s = Check(type, w, "values", values); !s.ok()) return s;
  if (values > 0 && out == nullptr) return Bad("out is null");
  return SPARKV_CUDA_LAUNCH("GgufToHalfCuda",
                            LaunchGgufToHalf(static_cast<CudaWeightType>(type),
                                             static_cast<const uint8_t*>(w), values, out, stream));
}

absl::Status GgufLinearCuda(GgmlType type, GgufLinearCudaArgs a,
                            [[maybe_unused]] CudaStream stream) {
  if (absl::Status s = Check(type, a.w, "k", a.k); !s.ok()) return s;
  if (a.k == 0 || a.k > size_t{1} << 24) return Bad("k is ", a.k, ", allowed: 1..2^24");
  if (a.rows > size_t{1} << 31) return Bad("rows is ", a.rows, ", at most 2^31");
  if (a.batch == 0 || a.batch > kCudaLinearBatch)
    return Bad("batch is ", a.batch, ", allowed: 1..", kCudaLinearBatch);
  if (a.batch > 1 && a.x_stride < a.k) return Bad("x_stride is ", a.x_stride, ", at least ", a.k);
  if (a.batch > 1 && a.y_stride < a.rows)
    return Bad("y_stride is ", a.y_stride, ", at least ", a.rows);
  if (a.rows > 0 && (a.x == nullptr || a.y == nullptr))
    return Bad(a.x == nullptr ? "x" : "y", " is null");
  a.type = static_cast<CudaWeightType>(type);
  return SPARKV_CUDA_LAUNCH("GgufLinearCuda", LaunchGgufLinear(a, stream));
}

}  // namespace sparkv::kernels
