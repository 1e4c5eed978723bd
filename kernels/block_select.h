// Which key blocks a block of queries needs: the predictor of SpargeAttention (Zhang et al. 2025).
//
// Blocks of queries and keys are pooled to their means. The pooled scores of a query block, through
// a softmax, estimate how its attention spreads over key blocks; it visits the heaviest ones until
// they hold `tau` of that mass. A mean stands for its block only if the block's rows are alike: by
// the mean cosine of all pairs of rows, |sum of x / |x||^2 / n^2. Where that is below `theta`, a
// key block is always visited and takes no part in the softmax, and a query block visits all it
// sees. So are blocks with a NaN or an infinity. The key blocks at the query block's own positions
// and key block 0, where sinks are, are always visited and count first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/block_attention.h"
#include "kernels/panel_attention.h"

namespace sparkv::kernels {

struct SelectOptions {
  float tau = 0.98f;   // 0..1
  float theta = 0.6f;  // -1..1; above 1: everything is visited
};

// mean [dim] of rows [count][dim], `stride` floats apart; returns their self-similarity. count > 0.
float PoolRows(const float* rows, size_t stride, size_t count, size_t dim, float* mean);
float PoolRowsScalar(const float* rows, size_t stride, size_t count, size_t dim, float* mean);

struct PooledKeys {
  const float* mean = nullptr;        // [kv_heads][capacity][dim]
  const float* similarity = nullptr;  // [kv_heads][capacity]
  size_t capacity = 0;                // key blocks there is room for
};

// Appends the key blocks of one query block of one head, ascending. args.lists, outputs and pages
// are not read. Reentrant.
void SelectBlocksOf(const BlockAttentionArgs& args, const PooledKeys& keys,
                    const SelectOptions& options, size_t head, size_t query_block,
                    std::vector<uint32_t>* blocks);

// Lists of all heads and query blocks of a problem.
struct SelectedBlocks {
  std::vector<uint32_t> begin, blocks;
  BlockLists lists() const { return {begin.data(), blocks.data()}; }
};

// Pools the keys of args.kv and selects for every query head and block. Does not look at
// args.lists, out, log_sum and mass. InvalidArgument as CheckBlockAttention, and for options out of
// their range.
absl::Status SelectBlocks(const BlockAttentionArgs& args, const SelectOptions& options,
                          SelectedBlocks* selected, const RunUnits& run = nullptr);
// The scalar twin, in f64.
absl::Status SelectBlocksScalar(const BlockAttentionArgs& args, const SelectOptions& options,
                                SelectedBlocks* selected);

// Key blocks that hold `share` of the attention of a query block: the least number n so that the
// n heaviest do, by the mean mass of kMassRows rows spread evenly over the query block. Their
// scores are exact, not pooled: a pooled map misjudges heads whose blocks are not alike, and few
// rows without values cost but some 2 % of the query block's attention. args and panels as of
// PanelAttention, dense; scratch of ActiveBlocksScratchFloats.
inline constexpr size_t kMassRows = 6;
size_t ActiveBlocksScratchFloats(const BlockAttentionArgs& args);
size_t ActiveBlocks(const BlockAttentionArgs& args, const KvPanels& panels, size_t head,
                    size_t query_block, float share, float* scratch);

}  // namespace sparkv::kernels
