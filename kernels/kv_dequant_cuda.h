// Codes of the codec `generic` to f16 values in pages of the cache, on a CUDA device.
#pragma once

#include "absl/status/status.h"
#include "kernels/kv_dequant_launch.h"

namespace sparkv::kernels {

// Queues the work behind what `stream` holds. Value (t, d) becomes
// f16(clamp(lo + step * (code_scale * code + code_offset), -65504, 65504)), each operation rounded:
// the bits of the CPU's decoder. When the work is done, ok[i] is 0 where a lo of job i is not
// finite or a step is that or negative, else 1. InvalidArgument names the argument; Unimplemented:
// this build has no CUDA kernels; Internal: CUDA refused the launch. Threads: any.
absl::Status KvDequantizeCuda(const KvDequantCudaArgs& args, CudaStream stream);

}  // namespace sparkv::kernels
