#include "kernels/panel_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/gemm_micro.h"
#include "kernels/row_ops.h"

namespace sparkv::kernels {
namespace {

constexpr size_t kTileBlocks = 4;  // key blocks of one tile of scores
constexpr size_t kTileKeys = kTileBlocks * kKeyBlock;
constexpr size_t kScoreStride =
    kTileKeys + 16;  // rows a power of two apart would compete for sets of the L1 cache
constexpr size_t kRows = internal::kMicroRows;

static_assert(kKeyPanel == internal::kPanelColumns && kKeyBlock % kKeyPanel == 0);

size_t Padded(size_t dim) { return (dim + kKeyPanel - 1) / kKeyPanel * kKeyPanel; }

size_t KeyBlocks(size_t keys) { return (keys + kKeyBlock - 1) / kKeyBlock; }

// Rows that the micro-kernel takes next: the last ones evenly, since one or two fill few registers.
size_t NextRows(size_t left) {
  if (left <= kRows) return left;
  return left < 2 * kRows ? (left + 1) / 2 : kRows;
}

bool AllFinite(const float* x, size_t n) {
  uint32_t bad = 0;
  for (size_t i = 0; i < n; ++i)
    bad |= (std::bit_cast<uint32_t>(x[i]) & 0x7F800000u) == 0x7F800000u ? 1 : 0;
  return bad == 0;
}

float Largest(const float* x, size_t n) {
  float largest[8] = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (size_t j = 0; j < 8; ++j) largest[j] = x[i + j] > largest[j] ? x[i + j] : largest[j];
  }
  for (; i < n; ++i) largest[0] = std::max(largest[0], x[i]);
  return *std::max_element(largest, largest + 8);
}

float Sum(const float* x, size_t n) {
  float sum[8] = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (size_t j = 0; j < 8; ++j) sum[j] += x[i + j];
  }
  for (; i < n; ++i) sum[0] += x[i];
  return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

// Up to kTileBlocks key blocks; column c of the scores is key blocks[c / 64] * 64 + c % 64.
struct Tile {
  size_t blocks[kTileBlocks];
  size_t count = 0;

  // Columns that a row sees which sees `seen` keys: a prefix, as blocks ascend.
  size_t Visible(size_t seen) const {
    for (size_t i = count; i-- > 0;) {
      const size_t from = blocks[i] * kKeyBlock;
      if (seen > from) return i * kKeyBlock + std::min(kKeyBlock, seen - from);
    }
    return 0;
  }
};

// Rows of one query head, in local numbers from 0.
class HeadRows {
 public:
  HeadRows(const BlockAttentionArgs& args, const KvPanels& panels, size_t head, size_t first,
           size_t last, float* scratch)
      : args_(args),
        micro_(internal::BestMicroKernels()),
        capacity_(panels.capacity),
        dim_(args.kv.dim),
        width_(Padded(args.kv.dim)),
        head_(head),
        first_(first),
        rows_(last - first),
        list_(head * args.query_blocks() + first / kQueryBlock),
        count_(args.lists.begin == nullptr ? KeyBlocks(args.begin + last)
                                           : args.lists.begin[list_ + 1] - args.lists.begin[list_]),
        q_(args.q + head * args.q_head_stride + first * args.q_row_stride),
        k_(panels.k + head / (args.heads / args.kv.kv_heads) * panels.k_head_stride),
        v_(panels.v + head / (args.heads / args.kv.kv_heads) * panels.v_head_stride),
        lightest_(args.skip_below > 0 ? std::exp(-args.skip_below) : 0.0f),
        scores_(internal::AlignToLine(scratch)),
        mean_(scores_ + rows_ * kScoreStride),
        max_(mean_ + rows_ * width_),
        sum_(max_ + rows_),
        share_(sum_ + rows_),
        share_max_(share_ + rows_ * count_) {}

  void Run() {
    std::fill_n(mean_, rows_ * width_, 0.0f);
    std::fill_n(max_, rows_, -INFINITY);
    std::fill_n(sum_, rows_, 0.0f);
    for (size_t entry = 0; entry < count_; entry += kTileBlocks) {
      Tile tile;
      tile.count = std::min(kTileBlocks, count_ - entry);
      for (size_t i = 0; i < tile.count; ++i) {
        tile.blocks[i] = args_.lists.begin == nullptr
                             ? entry + i
                             : args_.lists.blocks[args_.lists.begin[list_] + entry + i];
      }
      Add(tile, entry);
    }
    Write();
    if (args_.mass != nullptr) WriteMass();
  }

 private:
  size_t Seen(size_t row) const { return args_.begin + first_ + row + 1; }  // keys

  void Add(const Tile& tile, size_t entry) {
    // Rows before `from` see none of these keys.
    const size_t low = tile.blocks[0] * kKeyBlock;
    const size_t from = low < Seen(0) ? 0 : std::min(rows_, low + 1 - Seen(0));
    if (args_.mass != nullptr) {
      for (size_t i = 0; i < rows_; ++i) std::fill_n(&share_[i * count_ + entry], tile.count, 0.0f);
      for (size_t i = 0; i < from; ++i) share_max_[i * Tiles() + entry / kTileBlocks] = -INFINITY;
    }
    for (size_t row = from, rows = 0; row < rows_; row += rows) {
      rows = NextRows(rows_ - row);
      const size_t n = tile.Visible(Seen(row + rows - 1));
      float* line = scores_ + row * kScoreStride;
      for (size_t c = 0; c < n; c += kKeyPanel) {
        const size_t key = tile.blocks[c / kKeyBlock] * kKeyBlock + c % kKeyBlock;
        micro_.multiply(q_ + row * args_.q_row_stride, args_.q_row_stride, rows, k_ + key * dim_,
                        dim_, line + c, kScoreStride, false);
      }
      for (size_t i = row; i < row + rows; ++i, line += kScoreStride) {
        const size_t visible = tile.Visible(Seen(i));
        const float factor = SoftmaxBlock(line, visible, args_.scale, &max_[i], &sum_[i]);
        std::fill(line + visible, line + n, 0.0f);
        if (factor != 1.0f) {
          for (size_t d = 0; d < width_; ++d) mean_[i * width_ + d] *= factor;
        }
        if (args_.mass == nullptr) continue;
        share_max_[i * Tiles() + entry / kTileBlocks] = max_[i];
        for (size_t c = 0; c < visible; c += kKeyBlock) {
          share_[i * count_ + entry + c / kKeyBlock] =
              Sum(line + c, std::min(kKeyBlock, visible - c));
        }
      }
    }
    AddValues(tile, from);
  }

  void AddValues(const Tile& tile, size_t from) {
    // What a row does not see has weight 0, which a value that is not finite would survive.
    bool finite = true;
    for (size_t i = 0; i < tile.count && finite; ++i) {
      const size_t key = tile.blocks[i] * kKeyBlock;
      if (key + kKeyBlock <= Seen(from)) continue;
      const size_t keys = std::min(kKeyBlock, Seen(rows_ - 1) - key);
      for (size_t d = 0; d < width_ && finite; d += kKeyPanel)
        finite = AllFinite(v_ + d * capacity_ + key * kKeyPanel, keys * kKeyPanel);
    }
    if (lightest_ > 0) {
      for (size_t row = from, rows = 0; row < rows_; row += rows) {
        rows = NextRows(rows_ - row);
        Skip(row, rows, tile.Visible(Seen(row + rows - 1)));
      }
    }
    for (size_t d = 0; d < width_; d += kKeyPanel) {
      const float* panel = v_ + d * capacity_;
      for (size_t row = from, rows = 0; row < rows_; row += rows) {
        rows = NextRows(rows_ - row);
        const size_t n = tile.Visible(Seen(row + rows - 1));
        if (finite || tile.Visible(Seen(row)) == n) {
          Multiply(tile, row, rows, n, panel, d);
        } else {
          for (size_t i = row; i < row + rows; ++i)
            Multiply(tile, i, 1, tile.Visible(Seen(i)), panel, d);
        }
      }
    }
  }

  // Clears the weights of blocks that weigh too little in a row, and marks those of all rows.
  void Skip(size_t row, size_t rows, size_t n) {
    for (size_t c = 0; c < n; c += kKeyBlock) {
      const size_t columns = std::min(kKeyBlock, n - c);
      bool all = true;
      for (size_t i = row; i < row + rows; ++i) {
        float* line = scores_ + i * kScoreStride + c;
        if (Largest(line, columns) >= lightest_) {
          all = false;
        } else {
          std::fill_n(line, columns, 0.0f);
        }
      }
      skipped_[row * kTileBlocks + c / kKeyBlock] = all;
    }
  }

  // mean rows += weights times values, over runs of blocks that lie side by side.
  void Multiply(const Tile& tile, size_t row, size_t rows, size_t n, const float* panel, size_t d) {
    const auto skipped = [&](size_t i) { return lightest_ > 0 && skipped_[row * kTileBlocks + i]; };
    for (size_t i = 0; i * kKeyBlock < n;) {
      if (skipped(i)) {
        ++i;
        continue;
      }
      const size_t begin = i++;
      while (i * kKeyBlock < n && tile.blocks[i] == tile.blocks[i - 1] + 1 && !skipped(i)) ++i;
      const size_t depth = std::min(n, i * kKeyBlock) - begin * kKeyBlock;
      micro_.multiply(scores_ + row * kScoreStride + begin * kKeyBlock, kScoreStride, rows,
                      panel + tile.blocks[begin] * kKeyBlock * kKeyPanel, depth,
                      mean_ + row * width_ + d, width_, true);
    }
  }

  void Write() const {
    for (size_t i = 0; i < rows_; ++i) {
      const size_t row = first_ + i;
      const float scale = sum_[i] == 0.0f ? 0.0f : 1.0f / sum_[i];
      float* to = args_.out + head_ * args_.out_head_stride + row * args_.out_row_stride;
      for (size_t d = 0; d < dim_; ++d) to[d] = mean_[i * width_ + d] * scale;
      if (args_.log_sum != nullptr) args_.log_sum[head_ * args_.rows + row] = LogSum(i);
    }
  }

  float LogSum(size_t i) const { return sum_[i] == 0.0f ? -INFINITY : max_[i] + std::log(sum_[i]); }
  size_t Tiles() const { return (count_ + kTileBlocks - 1) / kTileBlocks; }

  void WriteMass() const {
    float* mass = args_.lists.begin == nullptr ? args_.mass + list_ * args_.key_blocks()
                                               : args_.mass + args_.lists.begin[list_];
    std::fill_n(mass, args_.lists.begin == nullptr ? args_.key_blocks() : count_, 0.0f);
    size_t finite = 0;
    for (size_t i = 0; i < rows_; ++i) {
      if (!std::isfinite(LogSum(i))) continue;
      ++finite;
      for (size_t j = 0; j < count_; ++j) {
        if (share_[i * count_ + j] == 0.0f) continue;
        mass[j] += share_[i * count_ + j] / sum_[i] *
                   std::exp(share_max_[i * Tiles() + j / kTileBlocks] - max_[i]);
      }
    }
    for (size_t j = 0; j < count_ && finite != 0; ++j) mass[j] /= static_cast<float>(finite);
  }

  const BlockAttentionArgs& args_;
  const internal::MicroKernels& micro_;
  const size_t capacity_, dim_, width_, head_, first_, rows_;
  const size_t list_, count_;  // of the query block, and its entries
  const float* const q_;
  const float* const k_;
  const float* const v_;
  const float lightest_;    // exp(-skip_below); 0: nothing is skipped
  float* const scores_;     // [rows][kScoreStride], then weights
  float* const mean_;       // [rows][width], not yet divided by sum
  float* const max_;        // [rows]
  float* const sum_;        // [rows]
  float* const share_;      // [rows][count] sum of a block's weights, when mass is wanted
  float* const share_max_;  // [rows][Tiles()] the maximum they are relative to
  bool skipped_[kQueryBlock * kTileBlocks] = {};  // [first row of a step][block]
};

}  // namespace

void PackKeys(const float* rows, size_t count, size_t dim, size_t first, float* k) {
  const internal::MicroKernels& micro = internal::BestMicroKernels();
  for (size_t key = 0; key < count; key += kKeyPanel) {
    float* panel = k + (first + key) * dim;
    for (size_t half = 0; half < kKeyPanel; half += 8) {
      if (key + half + 8 <= count) {
        micro.transpose(rows + (key + half) * dim, dim, dim, panel + half);
        continue;
      }
      for (size_t i = 0; i < 8; ++i) {
        const bool inside = key + half + i < count;
        for (size_t d = 0; d < dim; ++d) {
          panel[d * kKeyPanel + half + i] = inside ? rows[(key + half + i) * dim + d] : 0.0f;
        }
      }
    }
  }
}

void PackValues(const float* rows, size_t count, size_t dim, size_t first, size_t capacity,
                float* v) {
  const size_t end = (count + kKeyPanel - 1) / kKeyPanel * kKeyPanel;
  for (size_t d = 0; d < dim; d += kKeyPanel) {
    const size_t width = std::min(kKeyPanel, dim - d);
    float* panel = v + d * capacity + first * kKeyPanel;
    for (size_t key = 0; key < end; ++key, panel += kKeyPanel) {
      const size_t inside = key < count ? width : 0;
      if (inside != 0) std::memcpy(panel, rows + key * dim + d, inside * sizeof(float));
      std::fill(panel + inside, panel + kKeyPanel, 0.0f);
    }
  }
}

size_t PanelAttentionScratchFloats(const BlockAttentionArgs& args, size_t rows) {
  const size_t blocks = args.mass == nullptr ? 0 : args.key_blocks();
  return rows * (kScoreStride + Padded(args.kv.dim) + 2 + 2 * blocks) +
         internal::kCacheLine / sizeof(float);
}

void PanelAttention(const BlockAttentionArgs& args, const KvPanels& panels, size_t head,
                    size_t first, size_t last, float* scratch) {
  HeadRows(args, panels, head, first, last, scratch).Run();
}

}  // namespace sparkv::kernels
