#include "kernels/row_ops_cuda.h"

#include "kernels/block_attention_args.h"
#include "kernels/cuda_status.h"

namespace sparkv::kernels {
namespace {

constexpr size_t kMaxRows = size_t{1} << 31;  // of a grid's first dimension, less one
constexpr size_t kMaxWidth = size_t{1} << 24;

template <typename... Parts>
absl::Status Bad(const char* name, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", parts...));
}

absl::Status CheckSizes(const char* name, size_t rows, size_t n) {
  if (rows >= kMaxRows) return Bad(name, "rows is ", rows, ", below ", kMaxRows);
  if (n == 0 || n > kMaxWidth) return Bad(name, "a row of ", n, ", allowed: 1..", kMaxWidth);
  return absl::OkStatus();
}

}  // namespace

absl::Status RmsNormCuda(const RmsNormCudaArgs& a, [[maybe_unused]] CudaStream stream) {
  constexpr char kName[] = "RmsNormCuda";
  if (absl::Status s = CheckSizes(kName, a.rows, a.n); !s.ok()) return s;
  if (a.rows > 0 && a.x == nullptr) return Bad(kName, "x is null");
  if (a.rows > 0 && a.weight == nullptr) return Bad(kName, "weight is null");
  if (a.rows > 0 && a.y == nullptr && a.y_half == nullptr)
    return Bad(kName, "y and y_half are null");
  return SPARKV_CUDA_LAUNCH(kName, LaunchRmsNorm(a, stream));
}

absl::Status SiluMulCuda(const SiluMulCudaArgs& a, [[maybe_unused]] CudaStream stream) {
  constexpr char kName[] = "SiluMulCuda";
  if (a.n >> 38 != 0) return Bad(kName, "n is ", a.n, ", below 2^38");
  if (a.n > 0 && (a.gate == nullptr || a.up == nullptr))
    return Bad(kName, a.gate == nullptr ? "gate" : "up", " is null");
  if (a.n > 0 && a.out == nullptr && a.out_half == nullptr)
    return Bad(kName, "out and out_half are null");
  return SPARKV_CUDA_LAUNCH(kName, LaunchSiluMul(a, stream));
}

absl::Status RopeCuda(const RopeCudaArgs& a, [[maybe_unused]] CudaStream stream) {
  constexpr char kName[] = "RopeCuda";
  if (absl::Status s = CheckSizes(kName, a.rows, a.pairs); !s.ok()) return s;
  if (a.heads == 0 || a.heads > 65535)
    return Bad(kName, "heads is ", a.heads, ", allowed: 1..65535");
  if (a.begin > kMaxRows) return Bad(kName, "begin is ", a.begin, ", at most ", kMaxRows);
  if (a.heads > 1 && a.head_stride < 2 * a.pairs)
    return Bad(kName, "head_stride is ", a.head_stride, ", at least ", 2 * a.pairs);
  if (a.rows > 1 && a.row_stride < 2 * a.pairs)
    return Bad(kName, "row_stride is ", a.row_stride, ", at least ", 2 * a.pairs);
  if (a.rows > 0 && a.x == nullptr) return Bad(kName, "x is null");
  if (a.rows > 0 && (a.cos == nullptr || a.sin == nullptr))
    return Bad(kName, a.cos == nullptr ? "cos" : "sin", " is null");
  return SPARKV_CUDA_LAUNCH(kName, LaunchRope(a, stream));
}

absl::Status StoreKvCuda(const StoreKvCudaArgs& a, [[maybe_unused]] CudaStream stream) {
  constexpr char kName[] = "StoreKvCuda";
  if (absl::Status s = CheckSizes(kName, a.rows, a.dim); !s.ok()) return s;
  if (a.kv_heads == 0 || a.kv_heads > 65535)
    return Bad(kName, "kv_heads is ", a.kv_heads, ", allowed: 1..65535");
  if (a.begin > kMaxRows) return Bad(kName, "begin is ", a.begin, ", at most ", kMaxRows);
  if (a.page_head_stride < kKeyBlock * a.dim)
    return Bad(kName, "page_head_stride is ", a.page_head_stride, ", at least ", kKeyBlock * a.dim);
  if (a.rows > 0 && (a.k == nullptr || a.v == nullptr))
    return Bad(kName, a.k == nullptr ? "k" : "v", " is null");
  if (a.rows > 0 && (a.k_pages == nullptr || a.v_pages == nullptr))
    return Bad(kName, a.k_pages == nullptr ? "k_pages" : "v_pages", " is null");
  return SPARKV_CUDA_LAUNCH(kName, LaunchStoreKv(a, stream));
}

}  // namespace sparkv::kernels
