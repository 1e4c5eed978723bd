#include "common/llm/small_forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention_decode.h"
#include "kernels/gguf_linear.h"
#include "kernels/half.h"
#include "kernels/row_ops.h"

namespace sparkv {
namespace {

constexpr uint32_t kMaxSplits = 16;

void Resize(std::vector<float>* v, size_t n) {
  if (v->size() < n) v->resize(n);
}

}  // namespace

SmallForward::SmallForward(ForwardContext* context)
    : context_(*context), members_(static_cast<size_t>(context->team.threads())) {}

void SmallForward::Prepare(uint32_t begin, uint32_t n) {
  const ModelConfig& c = context_.config;
  const auto threads = static_cast<uint32_t>(context_.team.threads());
  context_.rope.Reserve(begin + n);
  splits_ = n * c.kv_heads % threads == 0 ? 1 : std::min(threads, kMaxSplits);
  for (Member& m : members_) {
    Resize(&m.normed, size_t{n} * c.d_model);
    Resize(&m.q, context_.q_width());
    Resize(&m.attended, size_t{n} * context_.q_width());
  }
  Resize(&q_, size_t{n} * context_.q_width());
  Resize(&k_, size_t{n} * context_.kv_width());
  Resize(&v_, size_t{n} * context_.kv_width());
  Resize(&gate_, size_t{n} * c.d_ff);
  Resize(&up_, size_t{n} * c.d_ff);
  Resize(&y_, size_t{n} * c.d_model);
  const size_t parts = size_t{n} * c.heads * splits_;
  Resize(&part_max_, parts);
  Resize(&part_sum_, parts);
  Resize(&part_mean_, parts * c.head_dim);
}

void SmallForward::Norm(const Step& s, const std::vector<float>& weight, Member* member) {
  // Each member norms all rows for itself: cheaper than a barrier.
  const size_t d = context_.config.d_model;
  for (size_t r = 0; r < s.n; ++r) {
    kernels::RmsNorm(s.hidden + r * d, weight.data(), context_.config.rms_epsilon,
                     &member->normed[r * d], d);
  }
}

void SmallForward::Rows(int member, const Matrix& m, const float* x, uint32_t n, float* y) {
  const Share share = ShareOf(m.rows, member, context_.team.threads(), 8);
  for (size_t b = 0; b < n; b += kernels::kMaxLinearBatch) {
    const size_t batch = std::min<size_t>(kernels::kMaxLinearBatch, n - b);
    // The type, the width and the batch are in range: nothing is left to fail.
    kernels::GgufLinearRows(m.type, m.data, m.cols, share.begin, share.end, x + b * m.cols, m.cols,
                            batch, y + b * m.rows, m.rows)
        .IgnoreError();
  }
}

void SmallForward::ProjectQkv(const Step& s, bool q, bool kv, int member) {
  const LayerWeights& w = context_.weights.layers[s.layer];
  Member& own = members_[static_cast<size_t>(member)];
  Norm(s, w.attention_norm, &own);
  if (q) Rows(member, w.q, own.normed.data(), s.n, q_.data());
  if (kv) {
    Rows(member, w.k, own.normed.data(), s.n, k_.data());
    Rows(member, w.v, own.normed.data(), s.n, v_.data());
  }
}

void SmallForward::WriteKv(const Step& s, KvCache* cache, int member) {
  const ModelConfig& c = context_.config;
  const LayerWeights& w = context_.weights.layers[s.layer];
  const size_t dim = c.head_dim;
  const Share share = ShareOf(size_t{s.n} * c.kv_heads, member, context_.team.threads());
  for (size_t i = share.begin; i < share.end; ++i) {
    const auto r = static_cast<uint32_t>(i / c.kv_heads), h = static_cast<uint32_t>(i % c.kv_heads);
    const uint32_t position = s.begin + r;
    float* k = &k_[i * dim];
    float* v = &v_[i * dim];
    if (c.qkv_bias) {
      kernels::AddInto(&w.k_bias[h * dim], k, dim);
      kernels::AddInto(&w.v_bias[h * dim], v, dim);
    }
    if (c.qk_norm) kernels::RmsNorm(k, w.k_norm.data(), c.rms_epsilon, k, dim);
    context_.rope.Apply(position, k);
    for (const KvSide side : {KvSide::kK, KvSide::kV}) {
      const float* from = side == KvSide::kK ? k : v;
      std::byte* page = cache->PageData(position / kPageTokens, s.layer, side, h);
      const size_t skip = position % kPageTokens * dim;
      if (cache->geometry().dtype == KvDtype::kF16) {
        kernels::FloatToHalf(from, reinterpret_cast<uint16_t*>(page) + skip, dim);
      } else {
        std::memcpy(reinterpret_cast<float*>(page) + skip, from, dim * sizeof(float));
      }
    }
  }
}

void SmallForward::AttendParts(const Step& s, const KvCache& cache, int member) {
  const ModelConfig& c = context_.config;
  const LayerWeights& w = context_.weights.layers[s.layer];
  const size_t dim = c.head_dim, group = context_.group();
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const bool f16 = cache.geometry().dtype == KvDtype::kF16;
  float* q = members_[static_cast<size_t>(member)].q.data();
  const size_t units = size_t{s.n} * c.kv_heads * splits_;
  for (auto unit = static_cast<size_t>(member); unit < units;
       unit += static_cast<size_t>(context_.team.threads())) {
    const auto split = static_cast<uint32_t>(unit % splits_);
    const auto h = static_cast<uint32_t>(unit / splits_ % c.kv_heads);
    const auto r = static_cast<uint32_t>(unit / splits_ / c.kv_heads);
    const uint32_t position = s.begin + r;
    std::memcpy(q, &q_[size_t{r} * context_.q_width() + h * group * dim],
                group * dim * sizeof(float));
    for (size_t j = 0; j < group; ++j) {
      float* head = q + j * dim;
      if (c.qkv_bias) kernels::AddInto(&w.q_bias[(h * group + j) * dim], head, dim);
      if (c.qk_norm) kernels::RmsNorm(head, w.q_norm.data(), c.rms_epsilon, head, dim);
      context_.rope.Apply(position, head);
    }
    const kernels::AttentionState state{&part_max_[unit * group], &part_sum_[unit * group],
                                        &part_mean_[unit * group * dim]};
    std::fill_n(state.max, group, -INFINITY);
    std::fill_n(state.sum, group, 0.0f);
    std::fill_n(state.mean, group * dim, 0.0f);
    const uint32_t keys = position + 1;
    const Share pages = ShareOf((keys + kPageTokens - 1) / kPageTokens, static_cast<int>(split),
                                static_cast<int>(splits_));
    for (auto page = static_cast<uint32_t>(pages.begin); page < pages.end; ++page) {
      const std::byte* k = cache.PageData(page, s.layer, KvSide::kK, h);
      const std::byte* v = cache.PageData(page, s.layer, KvSide::kV, h);
      const size_t rows = std::min(kPageTokens, keys - page * kPageTokens);
      if (f16) {
        kernels::AttendRowsF16(q, group, reinterpret_cast<const uint16_t*>(k),
                               reinterpret_cast<const uint16_t*>(v), rows, dim, scale, state);
      } else {
        kernels::AttendRowsF32(q, group, reinterpret_cast<const float*>(k),
                               reinterpret_cast<const float*>(v), rows, dim, scale, state);
      }
    }
  }
}

void SmallForward::Output(const Step& s, int member) {
  const ModelConfig& c = context_.config;
  const LayerWeights& w = context_.weights.layers[s.layer];
  const size_t dim = c.head_dim, group = context_.group(), d = c.d_model;
  float* attended = members_[static_cast<size_t>(member)].attended.data();
  // Every member joins the parts of all heads for itself.
  for (size_t i = 0; i < size_t{s.n} * c.heads; ++i) {
    const size_t first = i / group * splits_ * group + i % group;  // unit of split 0, query j
    float highest = -INFINITY, sum = 0;
    for (size_t split = 0; split < splits_; ++split) {
      highest = std::max(highest, part_max_[first + split * group]);
    }
    float* out = attended + i * dim;
    std::fill_n(out, dim, 0.0f);
    for (size_t split = 0; split < splits_; ++split) {
      const size_t part = first + split * group;
      if (part_sum_[part] == 0.0f) continue;  // no keys in this range
      const float weight = std::exp(part_max_[part] - highest);
      sum += weight * part_sum_[part];
      const float* mean = &part_mean_[part * dim];
      for (size_t k = 0; k < dim; ++k) out[k] += weight * mean[k];
    }
    for (size_t k = 0; k < dim; ++k) out[k] /= sum;
  }
  Rows(member, w.o, attended, s.n, y_.data());
  const Share share = ShareOf(d, member, context_.team.threads(), 8);
  for (size_t r = 0; r < s.n; ++r) {
    kernels::AddInto(&y_[r * d + share.begin], s.hidden + r * d + share.begin,
                     share.end - share.begin);
  }
}

void SmallForward::FeedForward(const Step& s, int member) {
  const ModelConfig& c = context_.config;
  const LayerWeights& w = context_.weights.layers[s.layer];
  Member& own = members_[static_cast<size_t>(member)];
  const size_t d = c.d_model, ff = c.d_ff;
  Norm(s, w.ffn_norm, &own);
  Rows(member, w.gate, own.normed.data(), s.n, gate_.data());
  Rows(member, w.up, own.normed.data(), s.n, up_.data());
  const Share act = ShareOf(ff, member, context_.team.threads(), 8);
  for (size_t r = 0; r < s.n; ++r) {
    float* gate = &gate_[r * ff + act.begin];
    kernels::SiluMul(gate, &up_[r * ff + act.begin], gate, act.end - act.begin);
  }
  context_.team.Barrier();
  Rows(member, w.down, gate_.data(), s.n, y_.data());
  const Share share = ShareOf(d, member, context_.team.threads(), 8);
  for (size_t r = 0; r < s.n; ++r) {
    kernels::AddInto(&y_[r * d + share.begin], s.hidden + r * d + share.begin,
                     share.end - share.begin);
  }
}

absl::Status SmallForward::Project(uint32_t layer, const float* hidden, uint32_t begin, uint32_t n,
                                   KvCache* cache) {
  Prepare(begin, n);
  const Step step{layer, const_cast<float*>(hidden), begin, n};  // only read
  context_.team.Run([&](int member) {
    ProjectQkv(step, /*q=*/false, /*kv=*/true, member);
    context_.team.Barrier();
    WriteKv(step, cache, member);
  });
  return absl::OkStatus();
}

absl::Status SmallForward::Attend(uint32_t layer, float* hidden, uint32_t begin, uint32_t n,
                                  const KvCache& cache) {
  Prepare(begin, n);
  const Step step{layer, hidden, begin, n};
  context_.team.Run([&](int member) {
    ProjectQkv(step, /*q=*/true, /*kv=*/false, member);
    context_.team.Barrier();
    AttendParts(step, cache, member);
    context_.team.Barrier();
    Output(step, member);
    context_.team.Barrier();
    FeedForward(step, member);
  });
  return absl::OkStatus();
}

absl::Status SmallForward::AllLayers(float* hidden, uint32_t begin, uint32_t n, KvCache* cache,
                                     const CancelToken& cancel) {
  Prepare(begin, n);
  bool stop = false;  // written by member 0 ahead of a layer's first barrier, read by all behind it
  context_.team.Run([&](int member) {
    for (uint32_t layer = 0; layer < context_.config.layers; ++layer) {
      const Step step{layer, hidden, begin, n};
      if (member == 0) stop = !cancel.Check().ok();
      ProjectQkv(step, /*q=*/true, /*kv=*/true, member);
      context_.team.Barrier();
      if (stop) return;
      WriteKv(step, cache, member);
      context_.team.Barrier();
      AttendParts(step, *cache, member);
      context_.team.Barrier();
      Output(step, member);
      context_.team.Barrier();
      FeedForward(step, member);
      context_.team.Barrier();
    }
  });
  return cancel.Check();
}

absl::Status SmallForward::Logits(const float* hidden, uint32_t rows, float* logits) {
  Prepare(0, rows);
  const Step step{0, const_cast<float*>(hidden), 0, rows};  // only read
  context_.team.Run([&](int member) {
    Member& own = members_[static_cast<size_t>(member)];
    Norm(step, context_.weights.output_norm, &own);
    Rows(member, context_.weights.output, own.normed.data(), rows, logits);
  });
  return absl::OkStatus();
}

}  // namespace sparkv
