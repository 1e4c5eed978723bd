// The row operations of kernels/row_ops.h on a CUDA device, for many rows at once. Sums run in f32
// in an order that depends on n alone: 1e-5 relative to the CPU twins.
//
// InvalidArgument names the argument: a null pointer, no output, a stride below a row. Zero rows do
// nothing. Unimplemented: this build has no CUDA kernels. Internal: CUDA refused the launch. The
// work is queued behind what `stream` holds; arguments live until it is done. Threads: any.
#pragma once

#include "absl/status/status.h"
#include "kernels/row_ops_launch.h"

namespace sparkv::kernels {

absl::Status RmsNormCuda(const RmsNormCudaArgs& args, CudaStream stream);
absl::Status SiluMulCuda(const SiluMulCudaArgs& args, CudaStream stream);
absl::Status RopeCuda(const RopeCudaArgs& args, CudaStream stream);
absl::Status StoreKvCuda(const StoreKvCudaArgs& args, CudaStream stream);

}  // namespace sparkv::kernels
