// The only door to LibTorch: dense f32 math on raw pointers. No Torch type crosses this header.
//
// One thread makes all calls (LibTorch keeps an OpenMP pool per calling thread). A Torch exception comes back as
// Internal with its text; ResourceExhausted when Torch could not allocate.
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace sparkv::torch_math {

// Threads of later calls from this thread, at least 1.
void SetThreads(int threads);

// y = x w^T, or y += x w^T. x [m][k], w [n][k], y [m][n]; ldx, ldw, ldy floats between rows.
absl::Status GemmNT(const float* x, size_t ldx, const float* w, size_t ldw, float* y, size_t ldy,
                    size_t m, size_t n, size_t k, bool accumulate);

// Causal attention of `rows` queries that follow `begin` keys: row r sees keys [0, begin + r].
struct AttentionArgs {
  const float* q = nullptr;     // [kv_heads][rows][group][dim], contiguous
  const float* k = nullptr;     // [kv_heads][begin + rows][dim], kv_head_stride floats between heads
  const float* v = nullptr;     // as k
  size_t kv_heads = 0;
  size_t group = 0;             // query heads that share one KV head
  size_t rows = 0;
  size_t begin = 0;
  size_t dim = 0;
  size_t kv_head_stride = 0;
  float scale = 1.0f;
};

// out [rows][kv_heads * group][dim] = softmax(scale q k^T) v. Sums run in f32, in blocks of keys with an online softmax.
absl::Status CausalAttention(const AttentionArgs& args, float* out);

}  // namespace sparkv::torch_math
