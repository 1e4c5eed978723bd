// The only door to LibTorch: dense f32 math on raw pointers. No Torch type crosses this header.
//
// One thread makes all calls (LibTorch keeps an OpenMP pool per calling thread). A Torch exception
// comes back as Internal with its text; ResourceExhausted when Torch could not allocate.
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace sparkv::torch_math {

// Threads of later calls from this thread, at least 1.
void SetThreads(int threads);

// Causal attention of `rows` queries that follow `begin` keys: row r sees keys [0, begin + r].
struct AttentionArgs {
  const float* q = nullptr;  // [kv_heads][rows][group][dim], contiguous
  const float* k = nullptr;  // [kv_heads][begin + rows][dim], k_head_stride floats between heads
  const float* v = nullptr;  // [kv_heads][begin + rows][dim], v_head_stride floats between heads
  size_t kv_heads = 0;
  size_t group = 0;  // query heads that share one KV head
  size_t rows = 0;
  size_t begin = 0;
  size_t dim = 0;
  size_t k_head_stride = 0;
  size_t v_head_stride = 0;
  float scale = 1.0f;
};

// out [rows][out_stride], of which [kv_heads * group][dim] are written = softmax(scale q k^T) v.
// Sums run in f32, in blocks of keys with an online softmax.
absl::Status CausalAttention(const AttentionArgs& args, float* out, size_t out_stride);

}  // namespace sparkv::torch_math
