// Causal attention of many query rows over one KV head: the compute-bound case of prefill.
//
// Blocks of keys pass an online softmax (Milakov, Gimelshein 2018; as in FlashAttention, Dao et al.
// 2022) and both products run in the micro-kernel of gguf_gemm, so scores never leave the L2 cache.
// K and V come in panels, packed once for all rows:
//   k  [capacity / 16][dim][16]    16 keys side by side
//   v  [dim / 16, rounded up][capacity][16]    16 values of every key, zero behind dim
#pragma once

#include <cstddef>

namespace sparkv::kernels {

inline constexpr size_t kKeyPanel = 16;  // capacity is a multiple of it

inline size_t KeyPanelFloats(size_t capacity, size_t dim) { return capacity * dim; }
inline size_t ValuePanelFloats(size_t capacity, size_t dim) {
  return (dim + 15) / 16 * 16 * capacity;
}

// Packs rows [count][dim] as keys first.. of the head at k or v, and zeros up to the end of the
// last panel of keys; first is a multiple of kKeyPanel. k and v begin a cache line.
void PackKeys(const float* rows, size_t count, size_t dim, size_t first, float* k);
void PackValues(const float* rows, size_t count, size_t dim, size_t first, size_t capacity,
                float* v);

struct PrefillAttentionArgs {
  const float* q = nullptr;  // [rows][group][dim], contiguous
  const float* k = nullptr;  // panels
  const float* v = nullptr;
  size_t capacity = 0;  // keys that the panels have room for
  size_t group = 0;     // query heads that share the KV head
  size_t dim = 0;
  size_t begin = 0;  // keys before row 0: row r sees keys [0, begin + r]
  float scale = 1.0f;
};

// Rows of one call that keep its scores in the L2 cache.
size_t PrefillAttentionRows(size_t group);
size_t PrefillAttentionScratchFloats(size_t rows, size_t group, size_t dim);

// out[r * out_stride + g * dim + i] for rows [first, last): softmax(scale q k^T) v of query head g.
// Sums run in f32, in an order that depends on nothing but the row's keys and dim. Calls on other
// rows may run at the same time, each with its own scratch.
void PrefillAttention(const PrefillAttentionArgs& args, size_t first, size_t last, float* scratch,
                      float* out, size_t out_stride);

// The scalar twin: the definition, in f64.
void PrefillAttentionScalar(const PrefillAttentionArgs& args, size_t first, size_t last, float* out,
                            size_t out_stride);

}  // namespace sparkv::kernels
