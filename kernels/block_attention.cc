#include "kernels/block_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/half.h"

namespace sparkv::kernels {
namespace {

constexpr size_t kMaxHeads = 4096;
constexpr size_t kMaxTokens = size_t{1} << 31;  // block numbers and list sizes are 32 bits wide
constexpr size_t kMaxStride = size_t{1} << 40;  // so that no product of sizes overflows

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("attention: ", parts...));
}

absl::Status CheckKv(const PagedKv& kv, size_t keys) {
  if (kv.dim != 64 && kv.dim != 80 && kv.dim != 96 && kv.dim != 128 && kv.dim != 256)
    return Bad("kv.dim is ", kv.dim, ", allowed: 64, 80, 96, 128, 256");
  if (kv.kv_heads == 0 || kv.kv_heads > kMaxHeads)
    return Bad("kv.kv_heads is ", kv.kv_heads, ", allowed: 1..", kMaxHeads);
  if (kv.tokens > kMaxTokens) return Bad("kv.tokens is ", kv.tokens, ", at most ", kMaxTokens);
  if (kv.pages < (kv.tokens + kKeyBlock - 1) / kKeyBlock)
    return Bad("kv.tokens is ", kv.tokens, ", kv.pages is ", kv.pages, " of ", kKeyBlock);
  if (kv.head_stride < kKeyBlock * kv.dim || kv.head_stride > kMaxStride)
    return Bad("kv.head_stride is ", kv.head_stride, ", allowed: ", kKeyBlock * kv.dim, "..",
               kMaxStride);
  if (keys != 0 && kv.k == nullptr) return Bad("kv.k is null");
  if (keys != 0 && kv.v == nullptr) return Bad("kv.v is null");
  return absl::OkStatus();
}

absl::Status CheckPages(const PagedKv& kv, size_t keys) {
  for (const auto& [name, pointers] : {std::pair{"kv.k", kv.k}, std::pair{"kv.v", kv.v}}) {
    for (size_t p = 0; p * kKeyBlock < keys; ++p) {
      if (pointers[p] == nullptr) return Bad(name, "[", p, "] is null");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStride(const char* name, size_t stride, size_t count, size_t dim) {
  if (count > 1 && (stride < dim || stride > kMaxStride))
    return Bad(name, " is ", stride, ", allowed: ", dim, "..", kMaxStride);
  return absl::OkStatus();
}

absl::Status CheckStrides(const BlockAttentionArgs& a) {
  const size_t dim = a.kv.dim;
  for (const absl::Status& s : {CheckStride("q_row_stride", a.q_row_stride, a.rows, dim),
                                CheckStride("q_head_stride", a.q_head_stride, a.heads, dim),
                                CheckStride("out_row_stride", a.out_row_stride, a.rows, dim),
                                CheckStride("out_head_stride", a.out_head_stride, a.heads, dim)}) {
    if (!s.ok()) return s;
  }
  const bool rows_hold_heads =
      a.rows == 1 || a.out_row_stride >= (a.heads - 1) * a.out_head_stride + dim;
  const bool heads_hold_rows =
      a.heads == 1 || a.out_head_stride >= (a.rows - 1) * a.out_row_stride + dim;
  if (rows_hold_heads || heads_hold_rows) return absl::OkStatus();
  return Bad("rows of out overlap: out_row_stride is ", a.out_row_stride, ", out_head_stride ",
             a.out_head_stride, " for ", a.rows, " rows of ", a.heads, " heads");
}

absl::Status CheckLists(const BlockAttentionArgs& a) {
  const uint32_t* begin = a.lists.begin;
  const size_t query_blocks = a.query_blocks(), lists = a.heads * query_blocks;
  if (begin[0] != 0) return Bad("lists.begin[0] is ", begin[0], ", not 0");
  for (size_t list = 0; list < lists; ++list) {
    const size_t last = a.begin + std::min(a.rows, (list % query_blocks + 1) * kQueryBlock) - 1;
    const size_t blocks = last / kKeyBlock + 1;  // that the query block sees
    if (begin[list + 1] < begin[list])
      return Bad("lists.begin[", list + 1, "] is ", begin[list + 1], ", below ", begin[list]);
    // Before the list is walked: it may be behind what there is.
    if (begin[list + 1] - begin[list] > blocks)
      return Bad("list ", list, " names ", begin[list + 1] - begin[list], " blocks, there are ",
                 blocks);
    if (begin[list + 1] != begin[list] && a.lists.blocks == nullptr)
      return Bad("lists.blocks is null");
    for (uint32_t i = begin[list]; i < begin[list + 1]; ++i) {
      const uint32_t block = a.lists.blocks[i];
      if (block >= blocks)
        return Bad("list ", list, " names block ", block, ", its rows see ", blocks);
      if (i > begin[list] && block <= a.lists.blocks[i - 1])
        return Bad("list ", list, " names block ", block, " behind ", a.lists.blocks[i - 1],
                   ", they must ascend");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBlockAttentionShapes(const BlockAttentionArgs& a) {
  if (a.rows > a.kv.tokens || a.begin > a.kv.tokens - a.rows) {
    return Bad("begin is ", a.begin, " and rows ", a.rows, ", kv.tokens is ", a.kv.tokens);
  }
  if (absl::Status s = CheckKv(a.kv, a.begin + a.rows); !s.ok()) return s;
  if (a.heads == 0 || a.heads > kMaxHeads || a.heads % a.kv.kv_heads != 0) {
    return Bad("heads is ", a.heads, ", allowed: multiples of kv_heads = ", a.kv.kv_heads,
               " up to ", kMaxHeads);
  }
  if (!std::isfinite(a.scale)) return Bad("scale is ", a.scale, ", it must be finite");
  if (!(a.skip_below >= 0) || std::isinf(a.skip_below))
    return Bad("skip_below is ", a.skip_below, ", it must be 0 or a positive number");
  if (a.rows == 0) return absl::OkStatus();
  if (a.q == nullptr) return Bad("q is null");
  if (a.out == nullptr) return Bad("out is null");
  return CheckStrides(a);
}

RunUnits OrInTurn(const RunUnits& run) {
  if (run) return run;
  return [](size_t units, const std::function<void(size_t)>& fn) {
    for (size_t i = 0; i < units; ++i) fn(i);
  };
}

absl::Status CheckBlockAttention(const BlockAttentionArgs& a) {
  if (absl::Status s = CheckBlockAttentionShapes(a); !s.ok()) return s;
  if (absl::Status s = CheckPages(a.kv, a.begin + a.rows); !s.ok()) return s;
  return a.rows == 0 || a.lists.begin == nullptr ? absl::OkStatus() : CheckLists(a);
}

absl::Status BlockSparseAttentionScalar(const BlockAttentionArgs& a) {
  if (absl::Status s = CheckBlockAttention(a); !s.ok()) return s;
  const size_t dim = a.kv.dim, query_blocks = a.query_blocks(), key_blocks = a.key_blocks();
  const bool dense = a.lists.begin == nullptr;
  std::vector<uint32_t> all(key_blocks);
  for (size_t b = 0; b < key_blocks; ++b) all[b] = static_cast<uint32_t>(b);
  std::vector<double> score(key_blocks * kKeyBlock), mean(dim), share(key_blocks);
  for (size_t h = 0; h < a.heads; ++h) {
    const size_t head = h / (a.heads / a.kv.kv_heads) * a.kv.head_stride;
    const auto element = [&](const uint16_t* const* pages, size_t key, size_t i) {
      return double{HalfToFloat(pages[key / kKeyBlock][head + key % kKeyBlock * dim + i])};
    };
    for (size_t block = 0; block < query_blocks; ++block) {
      const size_t list = h * query_blocks + block;
      const size_t first = block * kQueryBlock, last = std::min(a.rows, first + kQueryBlock);
      const uint32_t* visited = dense ? all.data() : a.lists.blocks + a.lists.begin[list];
      const size_t count = dense ? (a.begin + last - 1) / kKeyBlock + 1
                                 : a.lists.begin[list + 1] - a.lists.begin[list];
      std::fill(share.begin(), share.end(), 0);
      size_t finite = 0;
      for (size_t r = first; r < last; ++r) {
        const float* q = a.q + h * a.q_head_stride + r * a.q_row_stride;
        const auto each_key = [&](auto&& fn) {
          for (size_t j = 0; j < count; ++j) {
            const size_t from = visited[j] * kKeyBlock;
            const size_t end = std::min(from + kKeyBlock, a.begin + r + 1);
            for (size_t key = from; key < end; ++key) fn(visited[j], key);
          }
        };
        double max = -INFINITY, sum = 0;
        each_key([&](size_t, size_t key) {
          double dot = 0;
          for (size_t i = 0; i < dim; ++i) dot += double{q[i]} * element(a.kv.k, key, i);
          score[key] = dot * double{a.scale};
          max = std::max(max, score[key]);
        });
        each_key([&](size_t, size_t key) { sum += score[key] = std::exp(score[key] - max); });
        std::fill(mean.begin(), mean.end(), 0);
        each_key([&](size_t, size_t key) {
          for (size_t i = 0; i < dim; ++i) mean[i] += score[key] / sum * element(a.kv.v, key, i);
        });
        float* out = a.out + h * a.out_head_stride + r * a.out_row_stride;
        for (size_t i = 0; i < dim; ++i) out[i] = static_cast<float>(mean[i]);
        // No key: log(0) is what the contract says.
        const double log_sum = sum == 0 ? -INFINITY : max + std::log(sum);
        if (a.log_sum != nullptr) a.log_sum[h * a.rows + r] = static_cast<float>(log_sum);
        if (!std::isfinite(log_sum)) continue;
        ++finite;
        each_key([&](size_t b, size_t key) { share[b] += score[key] / sum; });
      }
      if (a.mass == nullptr) continue;
      float* mass = a.mass + (dense ? list * key_blocks : a.lists.begin[list]);
      if (dense) std::fill(mass, mass + key_blocks, 0.0f);
      for (size_t j = 0; j < count && finite != 0; ++j)
        mass[j] = static_cast<float>(share[visited[j]] / static_cast<double>(finite));
      if (finite == 0) std::fill(mass, mass + count, 0.0f);
    }
  }
  return absl::OkStatus();
}

}  // namespace sparkv::kernels
