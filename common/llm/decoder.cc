#include "common/llm/decoder.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/llm/dense_forward.h"
#include "common/llm/forward.h"
#include "common/llm/small_forward.h"
#include "common/llm/token_rows.h"
#include "common/llm/weights.h"
#include "kernels/block_attention.h"

namespace sparkv {
namespace {

int Threads(int requested) {
  constexpr int kMaxThreads = 256;
  if (requested > 0) return std::min(requested, kMaxThreads);
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
}

// Drops the tokens that a failed call added.
class CacheRollback {
 public:
  explicit CacheRollback(KvCache* cache) : cache_(cache), tokens_(cache->tokens()) {}
  ~CacheRollback() {
    if (cache_ != nullptr) cache_->Truncate(tokens_);
  }
  void Keep() { cache_ = nullptr; }

 private:
  KvCache* cache_;
  const uint32_t tokens_;
};

}  // namespace

struct Decoder::Impl {
  Impl(const Model& model, int threads, const AttentionOptions& attention)
      : context(model.config(), model.weights(), threads),
        dense(&context, attention),
        small(&context) {}

  ForwardContext context;
  DenseForward dense;
  SmallForward small;
  std::vector<float> hidden;
};

Decoder::Decoder(std::shared_ptr<const Model> model, const DecoderOptions& options)
    : model_(std::move(model)),
      options_(options),
      impl_(std::make_unique<Impl>(*model_, Threads(options.threads), options.attention)) {
  options_.step_tokens = std::clamp(options_.step_tokens, 1u, kColumnTokens);
}

Decoder::~Decoder() = default;

int Decoder::threads() const { return impl_->context.team.threads(); }
void Decoder::set_dense_from(uint32_t position) { impl_->dense.set_dense_from(position); }

const AttentionWork& Decoder::attention_work() const { return impl_->dense.work(); }

uint32_t Decoder::StepRows(uint32_t history) const {
  constexpr double kOperations = 8e9;
  const ModelConfig& c = model_->config();
  const double q = double{1} * c.heads * c.head_dim, kv = double{1} * c.kv_heads * c.head_dim;
  const double weights = c.d_model * (2 * q + 2 * kv + 3.0 * c.d_ff);
  const double rows = kOperations / (2 * weights + 4 * q * history);
  // A selection serves a whole query block.
  const uint32_t least = options_.attention.sparse ? kernels::kQueryBlock : kDenseRows;
  return static_cast<uint32_t>(std::clamp<double>(rows, least, kColumnTokens));
}

absl::Status Decoder::Check(uint32_t layer, uint32_t begin, uint32_t n,
                            const KvCache& cache) const {
  const ModelConfig& c = model_->config();
  if (cache.geometry() != c.Geometry(cache.geometry().dtype)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the KV cache holds ", cache.geometry().ToString(), ", the model needs ",
                     c.Geometry(cache.geometry().dtype).ToString()));
  }
  if (layer >= c.layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer ", layer, ", allowed: 0..", c.layers - 1));
  }
  if (n == 0) return absl::InvalidArgumentError("no rows, at least 1 is needed");
  if (uint64_t{begin} + n > cache.tokens()) {
    return absl::InvalidArgumentError(absl::StrCat("rows [", begin, ", ", uint64_t{begin} + n,
                                                   ") of a KV cache of ", cache.tokens(),
                                                   " tokens"));
  }
  return absl::OkStatus();
}

absl::Status Decoder::Embed(std::span<const int32_t> tokens, float* hidden) {
  return TokenRows(*model_, tokens, hidden);
}

absl::Status Decoder::Project(uint32_t layer, const float* hidden, uint32_t begin, uint32_t n,
                              KvCache* cache) {
  RETURN_IF_ERROR(Check(layer, begin, n, *cache));
  if (n < kDenseRows) return impl_->small.Project(layer, hidden, begin, n, cache);
  return impl_->dense.Project(layer, hidden, begin, n, cache);
}

absl::Status Decoder::Attend(uint32_t layer, float* hidden, uint32_t begin, uint32_t n,
                             const KvCache& cache, uint32_t first_row) {
  RETURN_IF_ERROR(Check(layer, begin, n, cache));
  if (first_row >= n) {
    return absl::InvalidArgumentError(absl::StrCat("first row ", first_row, " of ", n));
  }
  hidden += size_t{first_row} * model_->config().d_model;
  begin += first_row;
  n -= first_row;
  if (n < kDenseRows) return impl_->small.Attend(layer, hidden, begin, n, cache);
  return impl_->dense.Attend(layer, hidden, begin, n, cache);
}

absl::Status Decoder::Queries(uint32_t layer, const float* hidden, uint32_t n, float* q) {
  if (layer >= model_->config().layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer ", layer, ", allowed: 0..", model_->config().layers - 1));
  }
  return impl_->dense.Queries(layer, hidden, n, q);
}

void Decoder::ParallelRows(uint32_t rows, uint32_t unit,
                           const std::function<void(uint32_t, uint32_t)>& fn) {
  const size_t units = (size_t{rows} + unit - 1) / unit;
  impl_->context.team.ParallelFor(units, 1, [&](size_t begin, size_t end) {
    fn(static_cast<uint32_t>(begin) * unit,
       static_cast<uint32_t>(std::min<size_t>(rows, end * unit)));
  });
}

absl::Status Decoder::Logits(const float* hidden, uint32_t rows, float* logits) {
  if (rows == 0) return absl::OkStatus();
  if (rows < kDenseRows) return impl_->small.Logits(hidden, rows, logits);
  return impl_->dense.Logits(hidden, rows, logits);
}

absl::Status Decoder::RunLayers(uint32_t begin, uint32_t n, KvCache* cache, bool last_row,
                                const CancelToken& cancel,
                                const std::function<void(uint32_t)>& layer_done,
                                std::vector<ActiveBlocksSum>* measured) {
  const ModelConfig& c = model_->config();
  const uint32_t step = std::min(options_.step_tokens, StepRows(begin + n));
  if (n < kDenseRows && step >= n)
    return impl_->small.AllLayers(impl_->hidden.data(), begin, n, cache, cancel);
  absl::Cleanup no_more = [this] { impl_->dense.set_measured(nullptr); };
  std::vector<ActiveBlocksSum> of_layer;
  for (uint32_t layer = 0; layer < c.layers; ++layer) {
    if (measured != nullptr) {
      of_layer.assign(c.kv_heads, {});
      impl_->dense.set_measured(&of_layer);
    }
    uint32_t known = 0;  // K, V rows of this layer that the last step has read already
    for (uint32_t done = 0; done < n; done += step) {
      RETURN_IF_ERROR(cancel.Check());
      const uint32_t rows = std::min(step, n - done);
      float* hidden = &impl_->hidden[size_t{done} * c.d_model];
      RETURN_IF_ERROR(Project(layer, hidden, begin + done, rows, cache));
      if (layer + 1 == c.layers) {  // nothing reads its output but the logits
        if (last_row && done + rows == n)
          RETURN_IF_ERROR(Attend(layer, hidden, begin + done, rows, *cache, rows - 1));
      } else if (rows < kDenseRows) {
        RETURN_IF_ERROR(impl_->small.Attend(layer, hidden, begin + done, rows, *cache));
      } else {
        RETURN_IF_ERROR(impl_->dense.Attend(layer, hidden, begin + done, rows, *cache, known));
        known = begin + done + rows;
      }
    }
    for (uint32_t h = 0; measured != nullptr && h < c.kv_heads; ++h) {
      ActiveBlocksSum& sum = (*measured)[layer * c.kv_heads + h];
      sum.blocks += of_layer[h].blocks;
      sum.samples += of_layer[h].samples;
    }
    layer_done(layer + 1);
  }
  return absl::OkStatus();
}

absl::Status Decoder::Prefill(std::span<const int32_t> tokens, KvCache* cache, float* logits,
                              const CancelToken& cancel,
                              const std::function<void(uint32_t)>& progress,
                              std::vector<uint16_t>* active_blocks) {
  const ModelConfig& c = model_->config();
  const uint32_t begin = cache->tokens();
  if (tokens.empty())
    return absl::InvalidArgumentError("no tokens to prefill, at least 1 is needed");
  if (tokens.size() > c.context_length || begin > c.context_length - tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        begin, " + ", tokens.size(), " tokens, the model's context is ", c.context_length));
  }
  const auto total = static_cast<uint32_t>(tokens.size());
  CacheRollback rollback(cache);
  RETURN_IF_ERROR(cache->Extend(begin + total));
  RETURN_IF_ERROR(Check(0, begin, total, *cache));
  std::vector<ActiveBlocksSum> measured(active_blocks == nullptr ? 0
                                                                 : size_t{c.layers} * c.kv_heads);
  // Layer by layer over a column's worth of rows, so that each layer's weights are expanded once
  // per column.
  for (uint32_t done = 0; done < total; done += kColumnTokens) {
    const uint32_t n = std::min(kColumnTokens, total - done);
    impl_->hidden.resize(size_t{n} * c.d_model);
    RETURN_IF_ERROR(cancel.Check());
    RETURN_IF_ERROR(Embed(tokens.subspan(done, n), impl_->hidden.data()));
    RETURN_IF_ERROR(RunLayers(
        begin + done, n, cache, logits != nullptr && done + n == total, cancel,
        [&](uint32_t layers) {
          if (progress) progress(done + static_cast<uint32_t>(uint64_t{n} * layers / c.layers));
        },
        active_blocks == nullptr ? nullptr : &measured));
    if (done + n == total && logits != nullptr) {
      RETURN_IF_ERROR(Logits(&impl_->hidden[size_t{n - 1} * c.d_model], 1, logits));
    }
  }
  RETURN_IF_ERROR(cancel.Check());
  if (active_blocks != nullptr) {
    active_blocks->clear();
    for (const ActiveBlocksSum& sum : measured)
      active_blocks->push_back(static_cast<uint16_t>(std::min<uint32_t>(sum.Mean(), UINT16_MAX)));
  }
  rollback.Keep();
  return absl::OkStatus();
}

absl::Status Decoder::DecodeOne(int32_t token, KvCache* cache, float* logits) {
  return Prefill({&token, 1}, cache, logits);
}

}  // namespace sparkv
