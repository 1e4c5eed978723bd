// The loader with a scripted stream and a compute whose K/V are a checkable function of (layer,
// position, history), so that a wrong order, a lost block or a stale hidden row shows in the
// result.
#include "edge/load/loader.h"

#include <cmath>
#include <numeric>
#include <thread>

#include "common/codec/enc_codec.h"
#include "kernels/half.h"
#include "tests/catch.h"

namespace sparkv {
namespace {

constexpr KvGeometry kGeometry{3, 1, 2, KvDtype::kF16};

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
  CancelToken cancel;
};

// Delivers items of a computed reference from a thread, with faults on request.
class ScriptedStream final : public ItemStream {
 public:
  ScriptedStream(std::vector<std::vector<std::string>> blocks, uint32_t layers)
      : blocks_(std::move(blocks)), layers_(layers) {}
  ~ScriptedStream() override { Stop(); }
  void Start(ItemSink* sink) override { sink_ = sink; }
  void Order(std::vector<ItemRef> items, bool) override {
    thread_ = std::thread([this, items = std::move(items)] {
      int sent = 0;
      for (const ItemRef& item : items) {
        if (stop_.load()) return;
        if (sent == break_after) return sink_->OnBroken(absl::UnavailableError("cut by the test"));
        if (sent == silent_after) return;
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
  explicit Fixture(uint32_t tokens, uint32_t query_tokens) : context(tokens), query(query_tokens) {
    std::iota(context.begin(), context.end(), 3);
    std::iota(query.begin(), query.end(), 100);
    auto created = KvPagePool::Create(kGeometry, kGeometry.token_bytes() * kPageTokens * 400);
    REQUIRE_OK(created);
    pool = *created;
    decoder = *FindDecoder("f16");
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
    const BlockEncoder* encoder = *FindEncoder("f16");
    for (uint32_t t = 0; t < problem.columns(); ++t) {
      const BlockShape shape{kGeometry.kv_heads, problem.column_tokens[t], kGeometry.head_dim};
      for (uint32_t l = 0; l < problem.layers; ++l) {
        std::vector<uint16_t> k(shape.elements()), v(shape.elements());
        REQUIRE_OK(reference->ExportBlock(l, problem.begin(t), problem.column_tokens[t], k.data(),
                                          v.data()));
        auto planes = encoder->EncodeBlock(shape, k.data(), v.data());
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
    job.planes = static_cast<uint32_t>(decoder->info().planes);
    job.cancel = compute.cancel;
    job.step_rows = 100;
    job.stall_limit = stall_limit;
    return RunLoad(job, &compute, RealClock());
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
  LoadProblem problem;
  FakeCompute compute;
  std::unique_ptr<KvCache> reference;
  std::vector<float> expected;
  std::vector<std::vector<std::string>> blocks;
  absl::Duration stall_limit = absl::Seconds(30);
};

TEST_CASE(
    "every split of streamed and computed layers gives the same K, V and the same last hidden "
    "row") {
  for (const uint32_t tokens : {1u, 700u, 1025u, 3000u}) {
    Fixture f(tokens, 5);
    const uint32_t columns = f.problem.columns();
    const uint32_t splits = static_cast<uint32_t>(std::pow(kGeometry.layers + 1, columns));
    for (uint32_t split = 0; split < splits; ++split) {
      std::vector<uint32_t> depth;
      for (uint32_t t = 0, rest = split; t < columns; ++t, rest /= kGeometry.layers + 1)
        depth.push_back(rest % (kGeometry.layers + 1));
      ScriptedStream stream(f.blocks, kGeometry.layers);
      KvCache cache(f.pool);
      const auto result = f.Load(&stream, depth, &cache);
      REQUIRE_OK(result);
      CHECK(result->degraded.empty());
      CHECK(result->last_hidden == f.expected);
      CHECK(result->blocks_streamed + result->blocks_computed == columns * kGeometry.layers);
      f.CheckEqual(cache);
    }
  }
}

TEST_CASE("each policy gives the same result") {
  Fixture f(2500, 4);
  for (const char* name : {"sparkv", "stream", "local", "cake"}) {
    ScriptedStream stream(f.blocks, kGeometry.layers);
    KvCache cache(f.pool);
    const auto result = f.Load(&stream, {}, &cache, *MakePolicy(name));
    INFO(name);
    REQUIRE_OK(result);
    CHECK(result->degraded.empty());
    CHECK(result->last_hidden == f.expected);
    f.CheckEqual(cache);
  }
}

TEST_CASE("a load without a question ends when all blocks are there") {
  Fixture f(1500, 3);
  f.query.clear();
  ScriptedStream stream(f.blocks, kGeometry.layers);
  KvCache cache(f.pool);
  const auto result = f.Load(&stream, {1, 0}, &cache);
  REQUIRE_OK(result);
  CHECK(result->last_hidden.empty());
  CHECK(result->blocks_streamed == 5);
  CHECK(cache.tokens() == 1500);
}

TEST_CASE("a broken stream, a failed item and broken bytes end in the right answer with a reason") {
  Fixture f(2100, 4);
  for (int fault = 0; fault < 4; ++fault) {
    for (const int at : {0, 1, 4, 8}) {
      ScriptedStream stream(f.blocks, kGeometry.layers);
      if (fault == 0) stream.break_after = at;
      if (fault == 1) stream.fail_at = at;
      if (fault == 2) stream.corrupt_at = at;
      if (fault == 3) stream.silent_after = at;
      f.stall_limit = fault == 3 ? absl::Milliseconds(50) : absl::Seconds(30);
      KvCache cache(f.pool);
      const auto result = f.Load(&stream, {0, 0, 0}, &cache);
      INFO("fault " << fault << " at " << at);
      REQUIRE_OK(result);
      REQUIRE_FALSE(result->degraded.empty());
      CHECK(result->last_hidden == f.expected);
      f.CheckEqual(cache);
    }
  }
}

TEST_CASE("a cancelled load stops between steps") {
  Fixture f(3000, 4);
  f.compute.projects = 0;
  f.compute.cancel_at = 4;
  ScriptedStream stream(f.blocks, kGeometry.layers);
  KvCache cache(f.pool);
  const auto result = f.Load(&stream, {3, 3, 3}, &cache);
  CHECK(result.status().code() == absl::StatusCode::kCancelled);
  CHECK(f.compute.projects == 4);
}

TEST_CASE("memory that runs out is an error, not a crash") {
  Fixture f(300, 2);
  auto small = KvPagePool::Create(kGeometry, kGeometry.token_bytes() * kPageTokens * 2);
  REQUIRE_OK(small);
  KvCache cache(*small);
  CHECK(f.Load(nullptr, {3}, &cache).status().code() == absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace sparkv
