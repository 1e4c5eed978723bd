#include "common/llm/dense_forward.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/llm/torch_math.h"
#include "kernels/cpu_features.h"
#include "kernels/half.h"
#include "kernels/row_ops.h"

namespace sparkv {
namespace {

constexpr size_t kTilesPerThread = 4;
constexpr size_t kUnitsPerThread = 6;  // of attention: enough to balance the threads
constexpr size_t kMinAttentionRows = 16;
constexpr size_t kMaxAttentionRows = 192;  // keeps the scores of a unit in the L2 cache
constexpr size_t kMicroRows = 6;           // units of whole steps of the micro-kernel
constexpr size_t kRowGrain = 8;

void Resize(std::vector<float>* v, size_t n) {
  if (v->size() < n) v->resize(n);
}

}  // namespace

DenseForward::DenseForward(ForwardContext* context, const AttentionOptions& attention)
    : context_(*context), attention_(attention), panels_(kernels::HasAvx2() || attention.sparse) {}

absl::Status DenseForward::Multiply(std::initializer_list<const Matrix*> stack, const float* x,
                                    size_t ldx, uint32_t n, float* y, size_t ldy, bool accumulate) {
  struct Tile {
    kernels::GemmArgs args;
    size_t begin, end;
  };
  size_t columns = 0;
  for (const Matrix* m : stack) columns += m->rows;
  // Whole tiles where there are plenty of them, else pieces that share the work evenly.
  const auto members = static_cast<size_t>(context_.team.threads());
  const size_t panels = columns / (kTilesPerThread * members * kernels::kGemmColumns);
  const size_t width =
      std::clamp(panels * kernels::kGemmColumns, kernels::kGemmColumns, kernels::kGemmTileColumns);
  std::vector<Tile> tiles;
  scratch_.resize(members);
  for (const Matrix* m : stack) {
    const kernels::GemmArgs args = {.type = m->type,
                                    .w = m->data,
                                    .columns = m->rows,
                                    .k = m->cols,
                                    .x = x,
                                    .ldx = ldx,
                                    .m = n,
                                    .y = y,
                                    .ldy = ldy,
                                    .accumulate = accumulate};
    for (size_t c = 0; c < m->rows; c += width)
      tiles.push_back({args, c, std::min<size_t>(m->rows, c + width)});
    for (std::vector<float>& scratch : scratch_)
      Resize(&scratch, kernels::GemmScratchFloats(m->type, m->cols));
    y += m->rows;
  }
  // Each thread takes the next tile when it is done with one: others may slow a core down.
  std::atomic<size_t> next{0};
  std::vector<absl::Status> status(members);
  context_.team.Run([&](int member) {
    const auto me = static_cast<size_t>(member);
    for (size_t i = next++; i < tiles.size() && status[me].ok(); i = next++) {
      status[me] =
          kernels::GgufGemm(tiles[i].args, tiles[i].begin, tiles[i].end, scratch_[me].data());
    }
  });
  for (const absl::Status& s : status) RETURN_IF_ERROR(s);
  return absl::OkStatus();
}

void DenseForward::Norm(const float* hidden, uint32_t n, const std::vector<float>& weight) {
  const size_t d = context_.config.d_model, ldx = kernels::GemmStride(d);
  Resize(&normed_, n * ldx);
  context_.team.ParallelFor(n, kRowGrain, [&](size_t from, size_t to) {
    for (size_t r = from; r < to; ++r) {
      kernels::RmsNorm(hidden + r * d, weight.data(), context_.config.rms_epsilon,
                       &normed_[r * ldx], d);
    }
  });
}

absl::Status DenseForward::Project(uint32_t layer, const float* hidden, uint32_t begin, uint32_t n,
                                   KvCache* cache) {
  const ModelConfig& c = context_.config;
  const LayerWeights& w = context_.weights.layers[layer];
  const size_t d = c.d_model, kv = context_.kv_width(), dim = c.head_dim;
  Norm(hidden, n, w.attention_norm);
  Resize(&wide_, n * 2 * kv);
  RETURN_IF_ERROR(Multiply({&w.k, &w.v}, normed_.data(), kernels::GemmStride(d), n, wide_.data(),
                           2 * kv, false));
  context_.rope.Reserve(begin + n);
  context_.team.ParallelFor(n, kRowGrain, [&](size_t from, size_t to) {
    for (size_t r = from; r < to; ++r) {
      float* k = &wide_[r * 2 * kv];
      if (c.qkv_bias) {
        kernels::AddInto(w.k_bias.data(), k, kv);
        kernels::AddInto(w.v_bias.data(), k + kv, kv);
      }
      for (size_t h = 0; h < c.kv_heads; ++h) {
        float* head = k + h * dim;
        if (c.qk_norm) kernels::RmsNorm(head, w.k_norm.data(), c.rms_epsilon, head, dim);
        context_.rope.Apply(begin + static_cast<uint32_t>(r), head);
      }
    }
    const float* k = &wide_[from * 2 * kv];
    cache->WriteRows(layer, begin + static_cast<uint32_t>(from), static_cast<uint32_t>(to - from),
                     k, k + kv, 2 * kv);
  });
  return absl::OkStatus();
}

absl::Status DenseForward::Queries(uint32_t layer, const float* hidden, uint32_t n, float* q) {
  const ModelConfig& c = context_.config;
  const LayerWeights& w = context_.weights.layers[layer];
  const size_t width = context_.q_width();
  Norm(hidden, n, w.attention_norm);
  RETURN_IF_ERROR(
      Multiply({&w.q}, normed_.data(), kernels::GemmStride(c.d_model), n, q, width, false));
  context_.team.ParallelFor(n, kRowGrain, [&](size_t from, size_t to) {
    for (size_t r = from; r < to; ++r) FinishQueries(w, q + r * width);
  });
  return absl::OkStatus();
}

void DenseForward::FinishQueries(const LayerWeights& w, float* row) const {
  const ModelConfig& c = context_.config;
  if (c.qkv_bias) kernels::AddInto(w.q_bias.data(), row, context_.q_width());
  if (!c.qk_norm) return;
  for (uint32_t h = 0; h < c.heads; ++h) {
    float* head = row + size_t{h} * c.head_dim;
    kernels::RmsNorm(head, w.q_norm.data(), c.rms_epsilon, head, c.head_dim);
  }
}

void DenseForward::ReadKv(uint32_t layer, uint32_t begin, uint32_t end, const KvCache& cache) {
  const ModelConfig& c = context_.config;
  const size_t dim = c.head_dim;
  const uint32_t first = begin / kPageTokens;
  const uint32_t pages = (end + kPageTokens - 1) / kPageTokens - first;
  context_.team.ParallelFor(size_t{pages} * c.kv_heads * 2, 1, [&](size_t from, size_t to) {
    std::vector<float> rows(panels_ ? kPageTokens * dim : 0);
    for (size_t i = from; i < to; ++i) {
      const uint32_t page = first + static_cast<uint32_t>(i % pages);
      const auto head = static_cast<uint32_t>(i / pages % c.kv_heads);
      const KvSide side = i / pages / c.kv_heads == 0 ? KvSide::kK : KvSide::kV;
      const uint32_t row = page * kPageTokens;
      const uint32_t low = std::max(begin, row), high = std::min(end, row + kPageTokens);
      float* data_of_head =
          side == KvSide::kK ? k_.get() + head * k_stride_ : v_.get() + head * v_stride_;
      float* out = panels_ ? rows.data() : data_of_head + low * dim;
      const std::byte* data = cache.PageData(page, layer, side, head);
      const size_t skip = (low - row) * dim, count = (high - low) * dim;
      if (cache.geometry().dtype == KvDtype::kF16) {
        kernels::HalfToFloat(reinterpret_cast<const uint16_t*>(data) + skip, out, count);
      } else {
        std::memcpy(out, reinterpret_cast<const float*>(data) + skip, count * sizeof(float));
      }
      if (!panels_) continue;
      if (side == KvSide::kK) {
        kernels::PackKeys(out, high - low, dim, low, data_of_head);
        if (attention_.sparse) {  // `begin` begins a page then
          const size_t block = size_t{head} * (kv_capacity_ / kPageTokens) + page;
          key_similarity_[block] =
              kernels::PoolRows(out, dim, high - low, dim, &key_mean_[block * dim]);
        }
      } else {
        kernels::PackValues(out, high - low, dim, low, kv_capacity_, data_of_head);
      }
    }
  });
}

absl::Status DenseForward::ReserveKv(uint32_t keys) {
  const ModelConfig& c = context_.config;
  k_.reset();
  v_.reset();
  kv_capacity_ = std::max(keys, std::min(2 * kv_capacity_, c.context_length));
  kv_capacity_ = (kv_capacity_ + kPageTokens - 1) / kPageTokens * kPageTokens;
  k_stride_ = kernels::KeyPanelFloats(kv_capacity_, c.head_dim);
  v_stride_ = kernels::ValuePanelFloats(kv_capacity_, c.head_dim);
  const auto allocate = [&](size_t floats) {
    return AlignedFloats(
        static_cast<float*>(::operator new(floats * sizeof(float), kAlignment, std::nothrow)));
  };
  k_ = allocate(c.kv_heads * k_stride_);
  v_ = allocate(c.kv_heads * v_stride_);
  if (attention_.sparse) {
    key_similarity_.resize(size_t{c.kv_heads} * kv_capacity_ / kPageTokens);
    key_mean_.resize(key_similarity_.size() * c.head_dim);
  }
  if (k_ != nullptr && v_ != nullptr) return absl::OkStatus();
  kv_capacity_ = 0;
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for a layer's K and V of ", keys, " tokens"));
}

absl::Status DenseForward::CausalAttention(uint32_t begin, uint32_t n, size_t ld_attended) {
  const ModelConfig& c = context_.config;
  const size_t dim = c.head_dim, group = context_.group();
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  if (!panels_) {
    torch_math::SetThreads(context_.team.threads());
    return torch_math::CausalAttention({.q = q_.data(),
                                        .k = k_.get(),
                                        .v = v_.get(),
                                        .kv_heads = c.kv_heads,
                                        .group = group,
                                        .rows = n,
                                        .begin = begin,
                                        .dim = dim,
                                        .k_head_stride = k_stride_,
                                        .v_head_stride = v_stride_,
                                        .scale = scale},
                                       attended_.data(), ld_attended);
  }
  kernels::BlockAttentionArgs args;
  args.kv.kv_heads = c.kv_heads;
  args.kv.dim = dim;
  args.q = q_.data();
  args.q_head_stride = n * dim;
  args.q_row_stride = dim;
  args.heads = c.heads;
  args.rows = n;
  args.begin = begin;
  args.scale = scale;
  args.out = attended_.data();
  args.out_head_stride = dim;
  args.out_row_stride = ld_attended;
  if (measured_ != nullptr) MeasureActiveBlocks(args);
  if (Sparse(begin, n)) {
    const absl::Duration start = RealClock().Now();
    Select(args);
    args.lists = selected_.lists();
    args.skip_below = attention_.skip_below;
    work_.select_s += absl::ToDoubleSeconds(RealClock().Now() - start);
  }
  const absl::Duration start = RealClock().Now();
  PanelAttention(args);
  work_.attend_s += absl::ToDoubleSeconds(RealClock().Now() - start);
  return absl::OkStatus();
}

bool DenseForward::Sparse(uint32_t begin, uint32_t n) const {
  return attention_.sparse && begin + n >= attention_.min_keys && begin + n <= dense_from_;
}

void DenseForward::Select(const kernels::BlockAttentionArgs& args) {
  const size_t blocks = args.query_blocks(), lists = args.heads * blocks;
  const kernels::PooledKeys keys = {key_mean_.data(), key_similarity_.data(),
                                    kv_capacity_ / kPageTokens};
  of_list_.resize(std::max(of_list_.size(), lists));
  context_.team.ParallelFor(lists, 1, [&](size_t from, size_t to) {
    for (size_t list = from; list < to; ++list) {
      of_list_[list].clear();
      kernels::SelectBlocksOf(args, keys, {attention_.tau, attention_.theta}, list / blocks,
                              list % blocks, &of_list_[list]);
    }
  });
  selected_.begin.assign(1, 0);
  selected_.blocks.clear();
  for (size_t list = 0; list < lists; ++list) {
    selected_.blocks.insert(selected_.blocks.end(), of_list_[list].begin(), of_list_[list].end());
    selected_.begin.push_back(static_cast<uint32_t>(selected_.blocks.size()));
  }
}

void DenseForward::MeasureActiveBlocks(const kernels::BlockAttentionArgs& args) {
  const size_t blocks = args.query_blocks(), group = context_.group();
  std::vector<size_t> active(args.heads * blocks);
  scratch_.resize(static_cast<size_t>(context_.team.threads()));
  for (std::vector<float>& scratch : scratch_)
    Resize(&scratch, kernels::ActiveBlocksScratchFloats(args));
  std::atomic<size_t> next{0};
  context_.team.Run([&](int member) {
    for (size_t i = next++; i < active.size(); i = next++) {
      active[i] = kernels::ActiveBlocks(args, Panels(), i / blocks, i % blocks, kMeasuredMass,
                                        scratch_[static_cast<size_t>(member)].data());
    }
  });
  for (size_t i = 0; i < active.size(); ++i) {
    ActiveBlocksSum& sum = (*measured_)[i / blocks / group];
    sum.blocks += active[i];
    ++sum.samples;
  }
}

void DenseForward::PanelAttention(kernels::BlockAttentionArgs args) {
  const auto members = static_cast<size_t>(context_.team.threads());
  const bool dense = args.lists.begin == nullptr;
  const size_t n = args.rows, even = n * args.heads / (kUnitsPerThread * members);
  size_t rows = kernels::kQueryBlock;
  if (dense) {
    rows = std::clamp<size_t>(even, std::min(n, kMinAttentionRows), kMaxAttentionRows);
    rows = (rows + kMicroRows - 1) / kMicroRows * kMicroRows;
  }
  const size_t blocks = (n + rows - 1) / rows, units = blocks * args.heads;
  scratch_.resize(members);
  for (std::vector<float>& scratch : scratch_)
    Resize(&scratch, kernels::PanelAttentionScratchFloats(args, rows));
  // The latest rows see the most keys: they go first, and each thread takes the next unit when it
  // is done. Heads of a group follow one another, for their panels are the same.
  std::atomic<size_t> next{0};
  context_.team.Run([&](int member) {
    for (size_t unit = next++; unit < units; unit = next++) {
      const size_t first = (blocks - 1 - unit / args.heads) * rows;
      kernels::PanelAttention(args, Panels(), unit % args.heads, first, std::min(n, first + rows),
                              scratch_[static_cast<size_t>(member)].data());
    }
  });
  for (size_t first = 0; first < n; first += kernels::kQueryBlock) {
    const size_t last = std::min(n, first + kernels::kQueryBlock);
    work_.seen += args.heads * ((args.begin + last - 1) / kernels::kKeyBlock + 1);
    if (dense) work_.visited += args.heads * ((args.begin + last - 1) / kernels::kKeyBlock + 1);
  }
  if (!dense) work_.visited += selected_.blocks.size();
}

absl::Status DenseForward::Attend(uint32_t layer, float* hidden, uint32_t begin, uint32_t n,
                                  const KvCache& cache, uint32_t known) {
  const ModelConfig& c = context_.config;
  const LayerWeights& w = context_.weights.layers[layer];
  const size_t d = c.d_model, q = context_.q_width(), dim = c.head_dim, ff = c.d_ff;
  const size_t ldx = kernels::GemmStride(d), ld_attended = kernels::GemmStride(q),
               ld_act = kernels::GemmStride(ff);
  const size_t group = context_.group();
  Resize(&wide_, n * std::max(q, 2 * ff));
  Norm(hidden, n, w.attention_norm);
  RETURN_IF_ERROR(Multiply({&w.q}, normed_.data(), ldx, n, wide_.data(), q, false));

  // Query rows go by head, [heads][n][dim]; for LibTorch by KV head, [kv_heads][n][group][dim].
  Resize(&q_, n * q);
  context_.rope.Reserve(begin + n);
  context_.team.ParallelFor(n, kRowGrain, [&](size_t from, size_t to) {
    for (size_t r = from; r < to; ++r) {
      float* row = &wide_[r * q];
      FinishQueries(w, row);
      for (size_t h = 0; h < c.heads; ++h) {
        float* head = row + h * dim;
        context_.rope.Apply(begin + static_cast<uint32_t>(r), head);
        const size_t row_of_q = panels_ ? h * n + r : (h / group * n + r) * group + h % group;
        std::memcpy(&q_[row_of_q * dim], head, dim * sizeof(float));
      }
    }
  });

  const uint32_t keys = begin + n;
  if (kv_capacity_ < keys) {
    RETURN_IF_ERROR(ReserveKv(keys));
    known = 0;  // the rows are gone
  }
  // Panels and pooled blocks are written whole.
  ReadKv(layer, known / kPageTokens * kPageTokens, keys, cache);
  Resize(&attended_, n * ld_attended);
  RETURN_IF_ERROR(CausalAttention(begin, n, ld_attended));
  RETURN_IF_ERROR(Multiply({&w.o}, attended_.data(), ld_attended, n, hidden, d, true));

  Norm(hidden, n, w.ffn_norm);
  RETURN_IF_ERROR(Multiply({&w.gate, &w.up}, normed_.data(), ldx, n, wide_.data(), 2 * ff, false));
  Resize(&act_, n * ld_act);
  context_.team.ParallelFor(n, kRowGrain, [&](size_t from, size_t to) {
    for (size_t r = from; r < to; ++r) {
      const float* gate = &wide_[r * 2 * ff];
      kernels::SiluMul(gate, gate + ff, &act_[r * ld_act], ff);
    }
  });
  return Multiply({&w.down}, act_.data(), ld_act, n, hidden, d, true);
}

absl::Status DenseForward::Logits(const float* hidden, uint32_t rows, float* logits) {
  const Matrix& output = context_.weights.output;
  Norm(hidden, rows, context_.weights.output_norm);
  return Multiply({&output}, normed_.data(), kernels::GemmStride(context_.config.d_model), rows,
                  logits, output.rows, false);
}

}  // namespace sparkv
