// How the attention kernels are started. No Abseil here: nvcc reads it. Callers use
// kernels/block_attention_cuda.h, which says what the arguments mean and checks them; here nothing
// is, and `rows` is above 0. nullptr, or what CUDA says.
#pragma once

#include <cstdint>

#include "kernels/block_attention_args.h"
#include "kernels/cuda_stream.h"

namespace sparkv::kernels {

// How PagedDecodeAttentionCuda cuts the keys: blocks of each part, so that the number of parts
// hangs on the number of key blocks alone.
inline constexpr size_t kDecodePartBlocks = 2, kMaxDecodeParts = 64;
inline size_t DecodePartBlocks(size_t key_blocks) {
  const size_t blocks = (key_blocks + kMaxDecodeParts - 1) / kMaxDecodeParts;
  return blocks < kDecodePartBlocks ? kDecodePartBlocks : blocks;
}
inline size_t DecodeParts(size_t key_blocks) {
  const size_t blocks = DecodePartBlocks(key_blocks);
  return (key_blocks + blocks - 1) / blocks;
}

namespace cuda {
const char* LaunchBlockAttention(const BlockAttentionArgs& a, uint32_t* faults, CudaStream stream);
const char* LaunchPagedDecode(const BlockAttentionArgs& a, float* scratch, uint32_t* faults,
                              CudaStream stream);
const char* LaunchAttentionMass(const BlockAttentionArgs& a, CudaStream stream);
}  // namespace cuda

// The same source on the CPU: tests/testing/cuda_emulator. In test programs only.
namespace emulated {
const char* LaunchBlockAttention(const BlockAttentionArgs& a, uint32_t* faults, CudaStream stream);
const char* LaunchPagedDecode(const BlockAttentionArgs& a, float* scratch, uint32_t* faults,
                              CudaStream stream);
const char* LaunchAttentionMass(const BlockAttentionArgs& a, CudaStream stream);
}  // namespace emulated

}  // namespace sparkv::kernels
