// A scripted stream and a compute whose K/V are a checkable function of (layer, position, history),
// so that a wrong order, a lost block or a stale hidden row shows in the loader's result.
#pragma once

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "common/codec/enc_codec.h"
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

// The static plan, with both sides free to go on past it.
class ConservingPolicy final : public LoadPolicy {
 public:
  explicit ConservingPolicy(std::vector<uint32_t> depth) : depth_(std::move(depth)) {}
  const char* name() const override { return "conserving"; }
  LoadPlan Plan(const LoadProblem& problem) const override {
    LoadPlan plan = MakeStaticPolicy(depth_)->Plan(problem);
    plan.work_conserving = true;
    return plan;
  }

 private:
  const std::vector<uint32_t> depth_;
};

// Delivers items of a computed reference from a thread, with faults on request.
class ScriptedStream final : public ItemStream {
 public:
  ScriptedStream(std::vector<std::vector<std::string>> blocks, uint32_t layers)
      : blocks_(std::move(blocks)), layers_(layers) {}
  ~ScriptedStream() override { Stop(); }
  void Start(ItemSink* sink) override { sink_ = sink; }
  void Order(std::vector<ItemRef> items, bool) override {
    ordered += items.size();
    for (const ItemRef& item : items) {
      if (item.layer == 0) ++ordered_of_first_layer;
    }
    if (reorder) reorder(&items);
    thread_ = std::thread([this, items = std::move(items)] {
      int sent = 0;
      const absl::Cleanup end = [this] { ended.store(true); };
      for (const ItemRef& item : items) {
        if (stop_.load()) return;
        if (before_item) before_item(sent);
        if (sent == break_after) return sink_->OnBroken(absl::UnavailableError("cut by the test"));
        if (sent == silent_after) {
          if (when_silent) when_silent();
          return;
        }
        std::string bytes = blocks_[item.column * layers_ + item.layer][item.plane];
        if (sent == fail_at) {
          sink_->OnItemFailed(item, absl::DataLossError("checksum"));
        } else {
          if (sent == corrupt_at) bytes = "no codec writes this";
          bytes_ += bytes.size();
          sink_->OnItem(item, std::move(bytes));
        }
        ++sent;
      }
    });
  }
  void Cancel(std::vector<ItemRef> items) override { cancelled += items.size(); }
  void Stop() override {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  uint64_t bytes_received() const override { return bytes_.load(); }

  int break_after = -1, silent_after = -1, fail_at = -1, corrupt_at = -1;
  std::function<void()> when_silent;
  std::function<void(int sent)> before_item;
  std::function<void(std::vector<ItemRef>*)> reorder;  // how items come, if not as ordered
  size_t ordered = 0, ordered_of_first_layer = 0;
  std::atomic<bool> ended{false};
  std::atomic<size_t> cancelled{0};

 private:
  const std::vector<std::vector<std::string>> blocks_;
  const uint32_t layers_;
  ItemSink* sink_ = nullptr;
  std::atomic<bool> stop_{false};
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
    if (policy == nullptr) policy = MakeStaticPolicy(std::move(depth));
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
