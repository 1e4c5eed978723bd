// The compute-bound half of BlockSparseAttention: many rows over K and V in panels, which are
// packed once for all rows (a cache that grows packs each block once).
//
// Key blocks pass an online softmax, up to four at a time, and both products run in the
// micro-kernel of gguf_gemm, so scores never leave the L2 cache. Panels of one KV head:
//   k  [capacity / 16][dim][16]                16 keys side by side
//   v  [dim / 16, rounded up][capacity][16]    16 values of every key, zero behind dim
// Unlike the operator this takes every dim and does not check its arguments.
#pragma once

#include <cstddef>

#include "kernels/block_attention.h"

namespace sparkv::kernels {

inline constexpr size_t kKeyPanel = 16;  // keys side by side

inline size_t KeyPanelFloats(size_t capacity, size_t dim) { return capacity * dim; }
inline size_t ValuePanelFloats(size_t capacity, size_t dim) {
  return (dim + 15) / 16 * 16 * capacity;
}

// Packs rows [count][dim] as keys first.. of the head at k or v, and zeros up to the end of the
// last panel of keys; first is a multiple of kKeyPanel. k and v begin a cache line.
void PackKeys(const float* rows, size_t count, size_t dim, size_t first, float* k);
void PackValues(const float* rows, size_t count, size_t dim, size_t first, size_t capacity,
                float* v);

struct KvPanels {
  const float* k = nullptr;  // [kv_heads], every head begins a cache line
  const float* v = nullptr;
  size_t k_head_stride = 0, v_head_stride = 0;  // floats
  size_t capacity = 0;                          // keys there is room for, a multiple of kKeyBlock
};

// Floats for calls of at most `rows` rows.
size_t PanelAttentionScratchFloats(const BlockAttentionArgs& args, size_t rows);

// Rows [first, last) of query head `head`. Where there are lists, mass or skip_below, these are one
// query block or none. args.kv gives kv_heads and dim alone. Calls on other rows or heads may run
// at the same time, each with its own scratch.
void PanelAttention(const BlockAttentionArgs& args, const KvPanels& panels, size_t head,
                    size_t first, size_t last, float* scratch);

}  // namespace sparkv::kernels
