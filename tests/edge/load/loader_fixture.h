// A scripted stream and a compute whose K/V are a checkable function of (layer, position, history),
// so that a wrong order, a lost block or a stale hidden row shows in the loader's result.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/codec/enc_codec.h"
#include "edge/load/compute_choice.h"
#include "edge/load/loader.h"
#include "tests/catch.h"

namespace sparkv::load_testing {

inline constexpr KvGeometry kGeometry{3, 1, 2, KvDtype::kF16};

// hidden [n][1]. K = hidden + layer, V = position. Attend: hidden = mean over K of rows [0, row],
// plus one: it reads every earlier row of the layer, so a missing block changes what comes out.
class FakeCompute final : public BlockCompute {
 public:
  uint32_t d_model() const override { return 1; }
  absl::Status Embed(std::span<const int32_t> tokens, float* hidden) override {
    for (size_t i = 0; i < tokens.size(); ++i) hidden[i] = static_cast<float>(tokens[i] % 17);
    return absl::OkStatus();
  }
  absl::Status Project(uint32_t layer, const float* hidden, uint32_t begin, uint32_t n,
                       KvCache* cache) override {
    std::vector<float> k(size_t{n} * 2), v(size_t{n} * 2);
    for (uint32_t i = 0; i < n; ++i) {
      k[2 * i] = k[2 * i + 1] = hidden[i] + static_cast<float>(layer);
      v[2 * i] = v[2 * i + 1] = static_cast<float>(begin + i);
    }
    cache->WriteRows(layer, begin, n, k.data(), v.data(), 2);
    ++projects;
    if (after_project) after_project();
    if (cancel_at > 0 && projects == cancel_at) cancel.Cancel();
    return absl::OkStatus();
  }
  absl::Status Attend(uint32_t layer, float* hidden, uint32_t begin, uint32_t n,
                      const KvCache& cache, uint32_t first_row) override {
    std::vector<float> k(size_t{begin + n} * 2);
    cache.ReadRows(layer, KvSide::kK, 0, begin + n, k.data(), k.size());
    double sum = 0;
    for (uint32_t i = 0; i < begin + n; ++i) {
      sum += k[2 * i];
      if (i >= begin + first_row)
        hidden[i - begin] = static_cast<float>(std::round(sum / (i + 1) * 4) / 4) + 1;
    }
    return absl::OkStatus();
  }
  int projects = 0;
  int cancel_at = 0;
  std::function<void()> after_project;
  CancelToken cancel;
};

// Moves with Advance, and a little with each look.
class TestClock final : public Clock {
 public:
  explicit TestClock(int64_t us_per_look = 0) : us_per_look_(us_per_look) {}
  absl::Duration Now() const override {
    return absl::Microseconds(us_.fetch_add(us_per_look_) + us_per_look_);
  }
  void Advance(absl::Duration d) { us_.fetch_add(absl::ToInt64Microseconds(d)); }

 private:
  const int64_t us_per_look_;
  mutable std::atomic<int64_t> us_{0};
};

// Given depths, with both sides free to go on past them.
class ConservingPolicy final : public LoadPolicy {
 public:
  explicit ConservingPolicy(std::vector<uint32_t> depth) : depth_(std::move(depth)) {}
  const char* name() const override { return "conserving"; }
  LoadPlan Plan(const LoadProblem& problem) override {
    return MakeGivenPolicy(depth_)->Plan(problem);
  }
  std::optional<BlockRef> NextBlock(const LoadView& view, const LoadPlan& plan) override {
    const std::optional<BlockRef> block = LoadPolicy::NextBlock(view, plan);
    if (block.has_value()) return block;
    for (uint32_t t = view.problem.columns(); t-- > 0;) {
      for (uint32_t i = 1; i < plan.depth[t]; ++i) {
        const uint32_t l = view.problem.whole_columns ? i : plan.depth[t] - i;
        if (view.Orderable(t, l)) return BlockRef{t, l};
      }
    }
    return std::nullopt;
  }
  std::optional<BlockRef> Steal(const LoadView& view, const LoadPlan&) override {
    return ChooseSteal(view);
  }

 private:
  const std::vector<uint32_t> depth_;
};

// Given depths, and the stream's blocks in an order that the test makes of the plan's.
class ReorderedPolicy final : public LoadPolicy {
 public:
  ReorderedPolicy(std::vector<uint32_t> depth, std::function<void(std::vector<BlockRef>*)> reorder)
      : depth_(std::move(depth)), reorder_(std::move(reorder)) {}
  const char* name() const override { return "reordered"; }
  LoadPlan Plan(const LoadProblem& problem) override {
    LoadPlan plan = MakeGivenPolicy(depth_)->Plan(problem);
    reorder_(&plan.order);
    return plan;
  }

 private:
  const std::vector<uint32_t> depth_;
  const std::function<void(std::vector<BlockRef>*)> reorder_;
};
inline std::unique_ptr<LoadPolicy> ReversedPolicy(std::vector<uint32_t> depth) {
  return std::make_unique<ReorderedPolicy>(std::move(depth), [](std::vector<BlockRef>* order) {
    std::reverse(order->begin(), order->end());
  });
}
inline std::unique_ptr<LoadPolicy> ShuffledPolicy(std::vector<uint32_t> depth, uint32_t seed) {
  return std::make_unique<ReorderedPolicy>(std::move(depth), [seed](std::vector<BlockRef>* order) {
    std::mt19937 rng(seed);
    std::shuffle(order->begin(), order->end(), rng);
  });
}

// Delivers items of a computed reference from a thread, with faults on request.
class ScriptedStream final : public ItemStream {
 public:
  ScriptedStream(std::vector<std::vector<std::string>> blocks, uint32_t layers)
      : blocks_(std::move(blocks)), layers_(layers) {}
  ~ScriptedStream() override { Stop(); }
  void Start(ItemSink* sink) override {
    sink_ = sink;
    thread_ = std::thread([this] { Deliver(); });
  }
  void Order(std::vector<ItemRef> items, bool) override {
    absl::MutexLock lock(&mutex_);
    ordered += items.size();
    for (const ItemRef& item : items) {
      if (item.layer == 0) ++ordered_of_first_layer;
      queue_.push_back(item);
    }
    if (shuffle.has_value()) std::shuffle(queue_.begin(), queue_.end(), *shuffle);
  }
  void Cancel(std::vector<ItemRef> items) override {
    absl::MutexLock lock(&mutex_);
    cancelled += items.size();
    std::erase_if(queue_, [&](const ItemRef& item) {
      return std::find(items.begin(), items.end(), item) != items.end();
    });
  }
  void Stop() override {
    {
      absl::MutexLock lock(&mutex_);
      stop_ = true;
    }
    if (thread_.joinable()) thread_.join();
  }
  uint64_t bytes_received() const override { return bytes_.load(); }
  // Returns when all that was ordered has come, or nothing more will.
  void AwaitIdle() {
    absl::MutexLock lock(&mutex_);
    const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return over_ || (queue_.empty() && !delivering_);
    };
    mutex_.Await(absl::Condition(&idle));
  }

  int break_after = -1, silent_after = -1, fail_at = -1, corrupt_at = -1;
  std::function<void()> when_silent;
  std::function<void(int sent)> before_item;
  std::optional<std::mt19937> shuffle;  // what waits comes in random order, planes apart
  size_t ordered = 0, ordered_of_first_layer = 0;
  std::atomic<size_t> cancelled{0};

 private:
  void Deliver() {
    for (int sent = 0;; ++sent) {
      ItemRef item;
      {
        absl::MutexLock lock(&mutex_);
        delivering_ = false;
        const auto wake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return stop_ || !queue_.empty();
        };
        mutex_.Await(absl::Condition(&wake));
        if (stop_) return;
        delivering_ = true;
        if (sent == break_after || sent == silent_after) over_ = true;
      }
      if (before_item) before_item(sent);
      if (sent == break_after) return sink_->OnBroken(absl::UnavailableError("cut by the test"));
      if (sent == silent_after) {
        if (when_silent) when_silent();
        return;
      }
      {
        absl::MutexLock lock(&mutex_);
        if (queue_.empty()) {  // cancelled
          --sent;
          continue;
        }
        item = queue_.front();
        queue_.pop_front();
      }
      std::string bytes = blocks_[item.column * layers_ + item.layer][item.plane];
      if (sent == fail_at) {
        sink_->OnItemFailed(item, absl::DataLossError("checksum"));
        continue;
      }
      if (sent == corrupt_at) bytes = "no codec writes this";
      bytes_ += bytes.size();
      sink_->OnItem(item, std::move(bytes));
    }
  }

  const std::vector<std::vector<std::string>> blocks_;
  const uint32_t layers_;
  ItemSink* sink_ = nullptr;
  absl::Mutex mutex_;
  std::deque<ItemRef> queue_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool delivering_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<uint64_t> bytes_{0};
  std::thread thread_;
};

struct Fixture {
  explicit Fixture(uint32_t tokens, uint32_t query_tokens, const std::string& codec = "f16")
      : context(tokens), query(query_tokens) {
    std::iota(context.begin(), context.end(), 3);
    std::iota(query.begin(), query.end(), 100);
    auto created = KvPagePool::Create(kGeometry, kGeometry.token_bytes() * kPageTokens * 400);
    REQUIRE_OK(created);
    pool = *created;
    decoder = *FindDecoder(codec);
    planes = static_cast<uint32_t>(*decoder->info().PlanesForLevel(decoder->info().default_level));
    problem.layers = kGeometry.layers;
    for (uint32_t t = 0; t < ColumnCount(tokens); ++t)
      problem.column_tokens.push_back(ColumnTokens(tokens, t));
    problem.block_bytes.assign(size_t{problem.columns()} * problem.layers, 0);
    problem.compute.proj_row = problem.compute.dense_row = 1e-7;
    problem.link_bytes_per_s = 1e6;
    problem.query_tokens = query_tokens;
    reference = std::make_unique<KvCache>(pool);
    const auto local =
        Load(nullptr, {kGeometry.layers, kGeometry.layers, kGeometry.layers, kGeometry.layers},
             reference.get());
    REQUIRE_OK(local);
    expected = local->last_hidden;
    const BlockEncoder* encoder = *FindEncoder(codec);
    for (uint32_t t = 0; t < problem.columns(); ++t) {
      const BlockShape shape{kGeometry.kv_heads, problem.column_tokens[t], kGeometry.head_dim};
      for (uint32_t l = 0; l < problem.layers; ++l) {
        std::vector<uint16_t> k(shape.elements()), v(shape.elements());
        REQUIRE_OK(reference->ExportBlock(l, problem.begin(t), problem.column_tokens[t], k.data(),
                                          v.data()));
        auto planes = encoder->EncodeBlock({.shape = shape,
                                            .place = {.layer = l, .layers = kGeometry.layers},
                                            .k = k.data(),
                                            .v = v.data()});
        REQUIRE_OK(planes);
        for (const std::string& plane : *planes)
          problem.block_bytes[t * problem.layers + l] += plane.size();
        blocks.push_back(*planes);
      }
    }
  }

  absl::StatusOr<LoadResult> Load(ItemStream* stream, std::vector<uint32_t> depth, KvCache* cache,
                                  std::unique_ptr<LoadPolicy> policy = nullptr) {
    if (policy == nullptr) policy = MakeGivenPolicy(std::move(depth));
    LoadJob job;
    job.context = context;
    job.query = query;
    job.cache = cache;
    job.policy = policy.get();
    job.problem = problem;
    job.stream = stream;
    job.decoder = decoder;
    job.planes = planes;
    job.cancel = compute.cancel;
    job.step_rows = 100;
    job.stall_limit = stall_limit;
    job.slo = slo;
    job.levels = levels;
    return RunLoad(job, &compute, *clock);
  }

  void CheckEqual(const KvCache& cache) {
    const uint32_t n = static_cast<uint32_t>(context.size() + query.size());
    for (uint32_t l = 0; l < kGeometry.layers; ++l) {
      for (const KvSide side : {KvSide::kK, KvSide::kV}) {
        std::vector<float> a(size_t{n} * 2), b(size_t{n} * 2);
        reference->ReadRows(l, side, 0, n, a.data(), a.size());
        cache.ReadRows(l, side, 0, n, b.data(), b.size());
        REQUIRE(a == b);
      }
    }
  }

  std::vector<int32_t> context, query;
  std::shared_ptr<KvPagePool> pool;
  const BlockDecoder* decoder;
  uint32_t planes;
  const Clock* clock = &RealClock();
  LoadProblem problem;
  FakeCompute compute;
  std::unique_ptr<KvCache> reference;
  std::vector<float> expected;
  std::vector<std::vector<std::string>> blocks;
  absl::Duration stall_limit = absl::Seconds(30);
  absl::Duration slo;
  std::vector<LevelBytes> levels;
};

}  // namespace sparkv::load_testing
