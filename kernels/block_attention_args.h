// What the attention operators take; what they do: kernels/block_attention.h. No Abseil here: nvcc
// reads it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparkv::kernels {

inline constexpr size_t kQueryBlock = 128;  // rows
inline constexpr size_t kKeyBlock = 64;     // keys; a page holds one block
inline constexpr size_t kDecodeRows = 64;   // of PagedDecodeAttention at most

// K and V of one layer: page p holds keys [64 p, 64 p + 64) of every KV head,
// [kv_heads][kKeyBlock][dim] f16 bits each, `head_stride` elements between heads. Pages need the
// alignment of an element only.
struct PagedKv {
  const uint16_t* const* k = nullptr;  // [pages]
  const uint16_t* const* v = nullptr;  // [pages]
  size_t pages = 0;
  size_t tokens = 0;       // keys that are there, <= pages * kKeyBlock; behind them anything
  size_t kv_heads = 0;     // >= 1
  size_t dim = 0;          // 64, 80, 96, 128 or 256
  size_t head_stride = 0;  // elements, >= kKeyBlock * dim
};

// The key blocks that each (query head, query block) visits, in rows of `blocks`: row
// h * query_blocks + i is blocks[begin[row] .. begin[row + 1]). Strictly ascending, none behind the
// last key that the query block sees. A row of q that sees no key of its list has output 0 and
// log-sum-exp -inf.
struct BlockLists {
  const uint32_t* begin = nullptr;   // [heads * query_blocks + 1], ascending from 0; null: dense
  const uint32_t* blocks = nullptr;  // [begin[heads * query_blocks]]
};

struct BlockAttentionArgs {
  PagedKv kv;
  const float* q = nullptr;  // row r of query head h at q + h * q_head_stride + r * q_row_stride
  size_t q_head_stride = 0, q_row_stride = 0;  // floats
  size_t heads = 0;                            // a multiple of kv_heads
  size_t rows = 0;                             // may be 0
  size_t begin = 0;  // keys before row 0: row r sees keys [0, begin + r]; begin + rows <= tokens
  float scale = 1.0f;
  BlockLists lists;
  // > 0: the P V product of a key block may be left out for rows whose largest scaled score in it
  // is so far (natural units) below one of another visited key; its weight stays in the sum, so
  // what is lost is at most exp(-skip_below) of the row for each key. 0: nothing is skipped.
  float skip_below = 0;

  float* out = nullptr;  // strides as q's; rows must not overlap
  size_t out_head_stride = 0, out_row_stride = 0;
  float* log_sum = nullptr;  // [heads][rows] log-sum-exp of the visited scores; null: not wanted
  // Share of the softmax's mass in each visited block, mean over the query block's rows with a
  // finite log-sum-exp (0 if there is none): parallel to lists.blocks; dense:
  // [heads][query_blocks][key_blocks], 0 for blocks that the query block does not see. null: not
  // wanted.
  float* mass = nullptr;

  size_t query_blocks() const { return (rows + kQueryBlock - 1) / kQueryBlock; }
  size_t key_blocks() const { return (begin + rows + kKeyBlock - 1) / kKeyBlock; }
};

}  // namespace sparkv::kernels
