#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/block_attention.h"
#include "kernels/half.h"
#include "kernels/panel_attention.h"

namespace sparkv::kernels {
namespace {

constexpr std::align_val_t kLine{64};
struct FreeAligned {
  void operator()(float* p) const { ::operator delete(p, kLine); }
};
using AlignedFloats = std::unique_ptr<float[], FreeAligned>;

AlignedFloats Allocate(size_t floats) {
  return AlignedFloats(
      static_cast<float*>(::operator new(floats * sizeof(float), kLine, std::nothrow)));
}

// [kv_heads][pages] whether any list names the page.
std::vector<uint8_t> Visited(const BlockAttentionArgs& a, size_t pages) {
  const bool dense = a.lists.begin == nullptr;
  std::vector<uint8_t> visited(a.kv.kv_heads * pages, dense ? 1 : 0);
  if (dense) return visited;
  const size_t per_kv_head = a.heads / a.kv.kv_heads * a.query_blocks();
  for (size_t list = 0; list < a.heads * a.query_blocks(); ++list) {
    uint8_t* of_head = &visited[list / per_kv_head * pages];
    for (uint32_t i = a.lists.begin[list]; i < a.lists.begin[list + 1]; ++i)
      of_head[a.lists.blocks[i]] = 1;
  }
  return visited;
}

}  // namespace

absl::Status BlockSparseAttention(const BlockAttentionArgs& a, const RunUnits& run) {
  if (absl::Status s = CheckBlockAttention(a); !s.ok()) return s;
  if (a.rows == 0) return absl::OkStatus();
  const RunUnits each = OrInTurn(run);
  const size_t dim = a.kv.dim, pages = a.key_blocks(), keys = a.begin + a.rows;
  KvPanels panels = {.k_head_stride = KeyPanelFloats(pages * kKeyBlock, dim),
                     .v_head_stride = ValuePanelFloats(pages * kKeyBlock, dim),
                     .capacity = pages * kKeyBlock};
  const AlignedFloats k = Allocate(a.kv.kv_heads * panels.k_head_stride);
  const AlignedFloats v = Allocate(a.kv.kv_heads * panels.v_head_stride);
  if (k == nullptr || v == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("attention: no memory for the panels of ", keys, " keys"));
  }
  panels.k = k.get();
  panels.v = v.get();
  const std::vector<uint8_t> visited = Visited(a, pages);
  each(visited.size(), [&](size_t unit) {
    if (visited[unit] == 0) return;
    const size_t head = unit / pages, page = unit % pages, first = page * kKeyBlock;
    const size_t count = std::min(kKeyBlock, keys - first);
    std::vector<float> rows(count * dim);
    HalfToFloat(a.kv.k[page] + head * a.kv.head_stride, rows.data(), rows.size());
    PackKeys(rows.data(), count, dim, first, k.get() + head * panels.k_head_stride);
    HalfToFloat(a.kv.v[page] + head * a.kv.head_stride, rows.data(), rows.size());
    PackValues(rows.data(), count, dim, first, panels.capacity,
               v.get() + head * panels.v_head_stride);
  });
  const size_t blocks = a.query_blocks();
  each(a.heads * blocks, [&](size_t unit) {
    // The latest query blocks have the most keys and go first.
    const size_t first = (blocks - 1 - unit / a.heads) * kQueryBlock;
    const size_t last = std::min(a.rows, first + kQueryBlock);
    std::vector<float> scratch(PanelAttentionScratchFloats(a, last - first));
    PanelAttention(a, panels, unit % a.heads, first, last, scratch.data());
  });
  return absl::OkStatus();
}

}  // namespace sparkv::kernels
