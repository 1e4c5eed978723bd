// BlockSparseAttention and PagedDecodeAttention on a CUDA device: what kernels/block_attention.h
// says, with these differences.
//
// - All pointers, those inside of kv and lists too, are of memory that the device reads, and live
//   until the work is done. The work is queued behind what `stream` holds.
// - q is rounded to f16 (above 65504 to infinity), as are the weights of the values; sums are f32.
// - Pages at multiples of 16 bytes, with a head_stride that is a multiple of 8, come by
//   asynchronous copies; others by single values, which takes longer.
// - What lists hold can't be checked here. The kernels leave out what no list may name, so that
//   they touch nothing else; they set *faults (device memory, null: not wanted) to 1 when a list is
//   not as BlockLists says, and the output is undefined then.
// - `mass` needs `log_sum`.
//
// InvalidArgument names the argument. Unimplemented: this build has no CUDA kernels. Internal: CUDA
// refused the launch. Threads: any, as CUDA's streams allow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/block_attention_args.h"
#include "kernels/cuda_stream.h"

namespace sparkv::kernels {

absl::Status BlockSparseAttentionCuda(const BlockAttentionArgs& args, uint32_t* faults,
                                      CudaStream stream);

// At most kDecodeRows rows. The keys are cut into parts that hang on their number alone, and the
// parts' results are added in their order: the same bits in each run, on each device. scratch:
// [scratch_floats] device memory, PagedDecodeScratchFloats(args) at least.
absl::Status PagedDecodeAttentionCuda(const BlockAttentionArgs& args, float* scratch,
                                      size_t scratch_floats, uint32_t* faults, CudaStream stream);
size_t PagedDecodeScratchFloats(const BlockAttentionArgs& args);

}  // namespace sparkv::kernels
