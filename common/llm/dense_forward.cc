#include "common/llm/dense_forward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "common/base/status.h"
#include "common/llm/torch_math.h"
#include "kernels/half.h"
#include "kernels/row_ops.h"

namespace sparkv {
namespace {

constexpr size_t kMaxKeptFloats = size_t{64} << 20;  // of a stack: 256 MiB
constexpr size_t kSliceFloats = size_t{4} << 20;     // 16 MiB: stays in the last-level cache on its way into the GEMM
constexpr size_t kRowGrain = 8;

void Resize(std::vector<float>* v, size_t n) {
  if (v->size() < n) v->resize(n);
}

}  // namespace

void DenseForward::Expand(const Matrix& m, uint32_t begin, uint32_t end, float* out) {
  context_.team.ParallelFor(end - begin, 16, [&](size_t from, size_t to) {
    for (size_t r = from; r < to; ++r) {
      // The type and width were checked when the weights were bound.
      kernels::DequantizeRow(m.type, m.Row(begin + r), out + r * m.cols, m.cols).IgnoreError();
    }
  });
}

absl::Status DenseForward::Linear(Stack stack, uint32_t layer, const float* x, uint32_t n, float* y,
                                  size_t ldy, bool accumulate) {
  const LayerWeights& w = context_.weights.layers[layer];
  std::array<const Matrix*, 2> parts{};
  switch (stack) {
    case kQ: parts = {&w.q, nullptr}; break;
    case kKv: parts = {&w.k, &w.v}; break;
    case kO: parts = {&w.o, nullptr}; break;
    case kGateUp: parts = {&w.gate, &w.up}; break;
    default: parts = {&w.down, nullptr}; break;
  }
  const size_t count = parts[1] == nullptr ? 1 : 2;
  const size_t rows = parts[0]->rows, cols = parts[0]->cols;
  if (count * rows * cols <= kMaxKeptFloats) {
    Expanded& kept = expanded_[stack];
    if (kept.capacity < count * rows * cols) {
      kept = {std::make_unique_for_overwrite<float[]>(count * rows * cols), count * rows * cols, -1};
    }
    if (kept.layer != static_cast<int64_t>(layer)) {
      kept.layer = layer;
      for (size_t p = 0; p < count; ++p) {
        Expand(*parts[p], 0, static_cast<uint32_t>(rows), kept.data.get() + p * rows * cols);
      }
    }
    return torch_math::GemmNT(x, cols, kept.data.get(), cols, y, ldy, n, count * rows, cols, accumulate);
  }
  const size_t step = std::max<size_t>(1, kSliceFloats / cols);
  Resize(&slice_, std::min(step, rows) * cols);
  for (size_t p = 0; p < count; ++p) {
    for (size_t r = 0; r < rows; r += step) {
      const size_t end = std::min(rows, r + step);
      Expand(*parts[p], static_cast<uint32_t>(r), static_cast<uint32_t>(end), slice_.data());
      RETURN_IF_ERROR(torch_math::GemmNT(x, cols, slice_.data(), cols, y + p * rows + r, ldy, n,
                                         end - r, cols, accumulate));
    }
  }
  return absl::OkStatus();
}

absl::Status DenseForward::Project(uint32_t layer, const float* hidden, uint32_t begin, uint32_t n,
                                   KvCache* cache) {
  const ModelConfig& c = context_.config;
  const LayerWeights& w = context_.weights.layers[layer];
  const size_t d = c.d_model, kv = context_.kv_width(), dim = c.head_dim;
  torch_math::SetThreads(context_.team.threads());
  Resize(&normed_, n * d);
  Resize(&wide_, n * 2 * kv);
  context_.team.ParallelFor(n, kRowGrain, [&](size_t from, size_t to) {
    for (size_t r = from; r < to; ++r) {
      kernels::RmsNorm(hidden + r * d, w.attention_norm.data(), c.rms_epsilon, &normed_[r * d], d);
    }
  });
  RETURN_IF_ERROR(Linear(kKv, layer, normed_.data(), n, wide_.data(), 2 * kv, false));
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
    cache->WriteRows(layer, begin + static_cast<uint32_t>(from), static_cast<uint32_t>(to - from), k,
                     k + kv, 2 * kv);
  });
  return absl::OkStatus();
}

void DenseForward::ReadKv(uint32_t layer, uint32_t begin, uint32_t end, const KvCache& cache) {
  const ModelConfig& c = context_.config;
  const size_t dim = c.head_dim;
  const uint32_t first = begin / kPageTokens;
  const uint32_t pages = (end + kPageTokens - 1) / kPageTokens - first;
  context_.team.ParallelFor(size_t{pages} * c.kv_heads * 2, 1, [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      const uint32_t page = first + static_cast<uint32_t>(i % pages);
      const auto head = static_cast<uint32_t>(i / pages % c.kv_heads);
      const KvSide side = i / pages / c.kv_heads == 0 ? KvSide::kK : KvSide::kV;
      const uint32_t row = page * kPageTokens;
      const uint32_t low = std::max(begin, row), high = std::min(end, row + kPageTokens);
      float* out = (side == KvSide::kK ? k_ : v_).data() + (size_t{head} * kv_capacity_ + low) * dim;
      const std::byte* data = cache.PageData(page, layer, side, head);
      const size_t skip = (low - row) * dim, count = (high - low) * dim;
      if (cache.geometry().dtype == KvDtype::kF16) {
        kernels::HalfToFloat(reinterpret_cast<const uint16_t*>(data) + skip, out, count);
      } else {
        std::memcpy(out, reinterpret_cast<const float*>(data) + skip, count * sizeof(float));
      }
    }
  });
}

absl::Status DenseForward::Attend(uint32_t layer, float* hidden, uint32_t begin, uint32_t n,
                                  const KvCache& cache, uint32_t known) {
  const ModelConfig& c = context_.config;
  const LayerWeights& w = context_.weights.layers[layer];
  const size_t d = c.d_model, q = context_.q_width(), dim = c.head_dim, ff = c.d_ff;
  const size_t group = context_.group();
  torch_math::SetThreads(context_.team.threads());
  const auto norm = [&](const std::vector<float>& weight) {
    context_.team.ParallelFor(n, kRowGrain, [&](size_t from, size_t to) {
      for (size_t r = from; r < to; ++r) {
        kernels::RmsNorm(hidden + r * d, weight.data(), c.rms_epsilon, &normed_[r * d], d);
      }
    });
  };
  Resize(&normed_, n * d);
  Resize(&wide_, n * std::max(q, 2 * ff));
  norm(w.attention_norm);
  RETURN_IF_ERROR(Linear(kQ, layer, normed_.data(), n, wide_.data(), q, false));

  // Query rows go by KV head, [kv_heads][n][group][dim].
  Resize(&q_, n * q);
  context_.rope.Reserve(begin + n);
  context_.team.ParallelFor(n, kRowGrain, [&](size_t from, size_t to) {
    for (size_t r = from; r < to; ++r) {
      float* row = &wide_[r * q];
      if (c.qkv_bias) kernels::AddInto(w.q_bias.data(), row, q);
      for (size_t h = 0; h < c.heads; ++h) {
        float* head = row + h * dim;
        if (c.qk_norm) kernels::RmsNorm(head, w.q_norm.data(), c.rms_epsilon, head, dim);
        context_.rope.Apply(begin + static_cast<uint32_t>(r), head);
        std::memcpy(&q_[((h / group * n + r) * group + h % group) * dim], head, dim * sizeof(float));
      }
    }
  });

  const uint32_t keys = begin + n;
  if (kv_capacity_ < keys) {
    kv_capacity_ = std::max(keys, std::min(2 * kv_capacity_, kMaxContextTokens));
    k_.resize(size_t{c.kv_heads} * kv_capacity_ * dim);
    v_.resize(k_.size());
    known = 0;  // the rows moved
  }
  ReadKv(layer, known, keys, cache);
  Resize(&attended_, n * q);
  RETURN_IF_ERROR(torch_math::CausalAttention(
      {.q = q_.data(), .k = k_.data(), .v = v_.data(), .kv_heads = c.kv_heads, .group = group, .rows = n,
       .begin = begin, .dim = dim, .kv_head_stride = kv_capacity_ * dim,
       .scale = 1.0f / std::sqrt(static_cast<float>(dim))},
      attended_.data()));
  RETURN_IF_ERROR(Linear(kO, layer, attended_.data(), n, hidden, d, true));

  norm(w.ffn_norm);
  RETURN_IF_ERROR(Linear(kGateUp, layer, normed_.data(), n, wide_.data(), 2 * ff, false));
  Resize(&act_, n * ff);
  context_.team.ParallelFor(n, kRowGrain, [&](size_t from, size_t to) {
    for (size_t r = from; r < to; ++r) {
      const float* gate = &wide_[r * 2 * ff];
      kernels::SiluMul(gate, gate + ff, &act_[r * ff], ff);
    }
  });
  return Linear(kDown, layer, act_.data(), n, hidden, d, true);
}

absl::Status DenseForward::Logits(const float* hidden, uint32_t rows, float* logits) {
  const ModelConfig& c = context_.config;
  const Matrix& output = context_.weights.output;
  const size_t d = c.d_model;
  torch_math::SetThreads(context_.team.threads());
  Resize(&normed_, rows * d);
  context_.team.ParallelFor(rows, kRowGrain, [&](size_t from, size_t to) {
    for (size_t r = from; r < to; ++r) {
      kernels::RmsNorm(hidden + r * d, context_.weights.output_norm.data(), c.rms_epsilon,
                       &normed_[r * d], d);
    }
  });
  const auto step = static_cast<uint32_t>(std::max<size_t>(1, kSliceFloats / d));
  Resize(&slice_, size_t{std::min(step, output.rows)} * d);
  for (uint32_t r = 0; r < output.rows; r += step) {
    const uint32_t end = std::min(output.rows, r + step);
    Expand(output, r, end, slice_.data());
    RETURN_IF_ERROR(torch_math::GemmNT(normed_.data(), d, slice_.data(), d, logits + r, output.rows,
                                       rows, end - r, d, false));
  }
  return absl::OkStatus();
}

}  // namespace sparkv
