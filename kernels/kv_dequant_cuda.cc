#include "kernels/kv_dequant_cuda.h"

#include "kernels/cuda_status.h"

namespace sparkv::kernels {

absl::Status KvDequantizeCuda(const KvDequantCudaArgs& a, [[maybe_unused]] CudaStream stream) {
  static constexpr char kName[] = "KvDequantizeCuda";
  const auto bad = [](auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat(kName, ": ", parts...));
  };
  constexpr uint32_t kMaxJobs = 65535, kMaxTokens = 1u << 24, kMaxDim = 1u << 12;
  if (a.count > kMaxJobs) return bad("count is ", a.count, ", at most ", kMaxJobs);
  if (a.tokens > kMaxTokens) return bad("tokens is ", a.tokens, ", at most ", kMaxTokens);
  if (a.dim == 0 || a.dim > kMaxDim) return bad("dim is ", a.dim, ", allowed: 1..", kMaxDim);
  if (a.count > 0 && a.jobs == nullptr) return bad("jobs is null");
  if (a.count > 0 && a.ok == nullptr) return bad("ok is null");
  return SPARKV_CUDA_LAUNCH(kName, LaunchKvDequantize(a, stream));
}

}  // namespace sparkv::kernels
