// Weights stored as in the GGUF, on a CUDA device: Q8_0, Q4_0, Q4_1, Q4_K and Q6_K. The CPU twins
// are DequantizeRow and GgufLinearRows.
//
// InvalidArgument names the argument. Unimplemented: another type, or a build without CUDA kernels.
// Internal: CUDA refused the launch. All pointers are of device memory, weights at a multiple of 2;
// the work is queued behind what `stream` holds. Threads: any.
#pragma once

#include "absl/status/status.h"
#include "kernels/gguf_cuda_launch.h"
#include "kernels/gguf_dequant.h"

namespace sparkv::kernels {

// out[0..values) = the weights as f16, for a GEMM; what f16 can't hold becomes infinite.
absl::Status GgufToHalfCuda(GgmlType type, const void* w, size_t values, uint16_t* out,
                            CudaStream stream);

// y = W x for 1..kCudaLinearBatch vectors, without expanding W: each weight is read once. args.type
// is set from `type`. Sums run in f32 in an order that depends on k alone.
absl::Status GgufLinearCuda(GgmlType type, GgufLinearCudaArgs args, CudaStream stream);

}  // namespace sparkv::kernels
