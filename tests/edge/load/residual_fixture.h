// Loads with a codec whose blocks are finished in two steps: a compute that small errors of K and V
// change little, a tiny profile, and what the server would store.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/codec/column_decode.h"
#include "common/codec/dec_aatc.h"
#include "common/codec/enc_aatc.h"
#include "tests/edge/load/loader_fixture.h"
#include "tests/testing/tiny_profile.h"

namespace sparkv::load_testing {

inline constexpr KvGeometry kResidualGeometry{4, 1, 32, KvDtype::kF16};

// hidden [n][1]. K and V = hidden * a + b with a and b of channel and layer; ATTN halves hidden and
// adds a tenth of the mean K so far.
class SmoothCompute final : public BlockCompute {
 public:
  uint32_t d_model() const override { return 1; }
  absl::Status Embed(std::span<const int32_t> tokens, float* hidden) override {
    for (size_t i = 0; i < tokens.size(); ++i)
      hidden[i] = static_cast<float>(tokens[i] % 17) / 8 - 1;
    return absl::OkStatus();
  }
  absl::Status Project(uint32_t layer, const float* hidden, uint32_t begin, uint32_t n,
                       KvCache* cache) override {
    const uint32_t row = cache->geometry().row();
    std::vector<float> k(size_t{n} * row), v(k.size());
    for (uint32_t i = 0; i < n; ++i) {
      for (uint32_t c = 0; c < row; ++c) {
        k[i * row + c] = hidden[i] * Number(layer, c, 1) + Number(layer, c, 2);
        v[i * row + c] = hidden[i] * Number(layer, c, 3) + static_cast<float>((begin + i) % 5) / 8;
      }
    }
    cache->WriteRows(layer, begin, n, k.data(), v.data(), row);
    ++projects;
    if (after_project) after_project();
    if (cancel_at > 0 && projects == cancel_at) cancel.Cancel();
    return absl::OkStatus();
  }
  absl::Status Attend(uint32_t layer, float* hidden, uint32_t begin, uint32_t n,
                      const KvCache& cache, uint32_t first_row) override {
    const uint32_t row = cache.geometry().row();
    std::vector<float> k(size_t{begin + n} * row);
    cache.ReadRows(layer, KvSide::kK, 0, begin + n, k.data(), k.size());
    double sum = 0;
    for (uint32_t i = 0; i < begin + n; ++i) {
      sum += k[i * row + 3];
      if (i >= begin + first_row) {
        hidden[i - begin] = static_cast<float>(hidden[i - begin] / 2 + 0.1 * sum / (i + 1) + 0.25);
      }
    }
    return absl::OkStatus();
  }
  void ParallelRows(uint32_t rows, uint32_t unit,
                    const std::function<void(uint32_t, uint32_t)>& fn) override {
    const uint32_t half = rows / 2 / unit * unit;
    std::thread other([&] { fn(half, rows); });
    if (half > 0) fn(0, half);
    other.join();
    ++parallel_calls;
  }
  int projects = 0;
  int parallel_calls = 0;
  int cancel_at = 0;
  std::function<void()> after_project;
  CancelToken cancel;

 private:
  static float Number(uint32_t layer, uint32_t channel, uint32_t what) {
    const uint32_t x = (layer * 131 + channel) * 31 + what * 7919;
    return static_cast<float>(x * 2654435761u >> 20) / 2048 - 1;
  }
};

struct ResidualFixture {
  explicit ResidualFixture(uint32_t tokens, uint32_t query_tokens = 5, bool predicts = true) {
    for (uint32_t i = 0; i < tokens; ++i)
      context.push_back(static_cast<int32_t>((i * 37 + i / 50) % 1000));
    for (uint32_t i = 0; i < query_tokens; ++i) query.push_back(static_cast<int32_t>(100 + i));
    const KvGeometry& g = kResidualGeometry;
    auto created = KvPagePool::Create(g, g.token_bytes() * kPageTokens * 600);
    REQUIRE_OK(created);
    pool = *created;
    problem.layers = g.layers;
    for (uint32_t t = 0; t < ColumnCount(tokens); ++t)
      problem.column_tokens.push_back(ColumnTokens(tokens, t));
    problem.block_bytes.assign(size_t{problem.columns()} * problem.layers, 0);
    problem.compute.proj_row = problem.compute.dense_row = 1e-7;
    problem.final_row = 1e-8;
    problem.link_bytes_per_s = 1e6;
    problem.query_tokens = query_tokens;
    reference = std::make_unique<KvCache>(pool);
    const auto local = Load(nullptr, 1, {}, reference.get(), MakeLocalPolicy());
    REQUIRE_OK(local);
    expected = local->last_hidden;

    testing::TinyProfileOptions options{.geometry = g, .group = 32};
    if (!predicts) options.rank_below = options.rank_token = 0;
    const auto profile = testing::TinyProfile(options);
    REQUIRE(profile != nullptr);
    step = options.step;
    auto made = MakeResidualDecoder(profile, testing::TinyEmbedding(options.d_model));
    REQUIRE_OK(made);
    residual = *std::move(made);
    auto encoder = MakeResidualEncoder(profile, testing::TinyEmbedding(options.d_model));
    REQUIRE_OK(encoder);
    for (uint32_t t = 0; t < problem.columns(); ++t) {
      const BlockShape shape{g.kv_heads, problem.column_tokens[t], g.head_dim};
      std::vector<std::vector<uint16_t>> k(g.layers), v(g.layers);
      std::vector<const uint16_t*> ks, vs;
      for (uint32_t l = 0; l < g.layers; ++l) {
        k[l].resize(shape.elements());
        v[l].resize(shape.elements());
        REQUIRE_OK(
            reference->ExportBlock(l, problem.begin(t), shape.tokens, k[l].data(), v[l].data()));
        ks.push_back(k[l].data());
        vs.push_back(v[l].data());
      }
      auto encoded = (*encoder)->EncodeColumn(
          {.shape = shape, .first_token = problem.begin(t), .tokens = Tokens(t), .k = ks, .v = vs},
          nullptr);
      REQUIRE_OK(encoded);
      for (auto& block : encoded->planes) blocks.push_back(std::move(block));
    }
    problem.first_layer_local = true;
  }

  std::span<const int32_t> Tokens(uint32_t t) const {
    return std::span<const int32_t>(context).subspan(problem.begin(t), problem.column_tokens[t]);
  }
  uint64_t SymbolBytes() const { return uint64_t{4} * kResidualGeometry.row() * kColumnTokens; }

  absl::StatusOr<LoadResult> Load(ItemStream* stream, uint32_t planes, std::vector<uint32_t> depth,
                                  KvCache* cache, std::unique_ptr<LoadPolicy> policy = nullptr) {
    if (policy == nullptr) policy = MakeGivenPolicy(std::move(depth));
    LoadJob job;
    job.context = context;
    job.query = query;
    job.cache = cache;
    job.policy = policy.get();
    job.problem = problem;
    job.stream = stream;
    if (stream != nullptr) {
      job.residual = residual.get();
      job.planes = planes;
      job.problem.whole_columns = residual->predicts() && planes > 1;
      for (uint32_t i = 0; i < blocks.size(); ++i) {
        for (uint32_t p = 0; p < planes && i % problem.layers > 0; ++p)
          job.problem.block_bytes[i] += blocks[i][p].size();
        if (held_column == i / problem.layers && i % problem.layers > 0)
          job.problem.block_bytes[i] = LoadController::kHeldBytes;
      }
    }
    job.cancel = compute.cancel;
    job.step_rows = 100;
    job.stall_limit = stall_limit;
    if (waiting_limit > 0) job.waiting_limit_bytes = waiting_limit;
    return RunLoad(job, &compute, *clock);
  }

  // Root mean square of the difference from the exact K and V of one block.
  double Error(const KvCache& cache, uint32_t t, uint32_t l) const {
    const uint32_t n = problem.column_tokens[t];
    double sum = 0;
    std::vector<float> a(size_t{n} * kResidualGeometry.row()), b(a.size());
    for (const KvSide side : {KvSide::kK, KvSide::kV}) {
      reference->ReadRows(l, side, problem.begin(t), n, a.data(), a.size());
      cache.ReadRows(l, side, problem.begin(t), n, b.data(), b.size());
      for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
    }
    return std::sqrt(sum / static_cast<double>(2 * a.size()));
  }
  // What uniform rounding of the level makes, with some room for the transform.
  double Limit(uint32_t planes) const { return 0.45 * step / std::pow(3.0, planes - 1) + 2e-3; }
  void CheckClose(const KvCache& cache, uint32_t planes) const {
    for (uint32_t t = 0; t < problem.columns(); ++t) {
      for (uint32_t l = 0; l < problem.layers; ++l) {
        INFO("column " << t << " layer " << l);
        REQUIRE(Error(cache, t, l) <= Limit(planes));
      }
    }
  }
  double TotalError(const KvCache& cache) const {
    double sum = 0;
    for (uint32_t t = 0; t < problem.columns(); ++t) {
      for (uint32_t l = 0; l < problem.layers; ++l) sum += Error(cache, t, l);
    }
    return sum;
  }
  // Whether the context's rows hold the same bits.
  void CheckSame(const KvCache& a, const KvCache& b) const {
    for (uint32_t t = 0; t < problem.columns(); ++t) {
      const uint32_t n = problem.column_tokens[t];
      std::vector<uint16_t> k(size_t{n} * kResidualGeometry.row()), v(k), other_k(k), other_v(k);
      for (uint32_t l = 0; l < problem.layers; ++l) {
        INFO("column " << t << " layer " << l);
        REQUIRE_OK(a.ExportBlock(l, problem.begin(t), n, k.data(), v.data()));
        REQUIRE_OK(b.ExportBlock(l, problem.begin(t), n, other_k.data(), other_v.data()));
        REQUIRE(k == other_k);
        REQUIRE(v == other_v);
      }
    }
  }
  // All columns by DecodeColumn.
  std::unique_ptr<KvCache> Decoded(uint32_t planes) const {
    auto cache = std::make_unique<KvCache>(pool);
    REQUIRE_OK(cache->Extend(static_cast<uint32_t>(context.size())));
    for (uint32_t t = 0; t < problem.columns(); ++t) {
      const uint32_t n = problem.column_tokens[t];
      std::vector<uint16_t> k(size_t{n} * kResidualGeometry.row()), v(k);
      REQUIRE_OK(reference->ExportBlock(0, problem.begin(t), n, k.data(), v.data()));
      cache->ImportBlock(0, problem.begin(t), n, k.data(), v.data());
      std::vector<std::vector<std::span<const uint8_t>>> column(problem.layers);
      for (uint32_t l = 1; l < problem.layers; ++l) {
        for (uint32_t p = 0; p < planes; ++p) {
          const std::string& plane = blocks[t * problem.layers + l][p];
          column[l].emplace_back(reinterpret_cast<const uint8_t*>(plane.data()), plane.size());
        }
      }
      REQUIRE_OK(DecodeColumn(nullptr, residual.get(), column, problem.begin(t), Tokens(t), nullptr,
                              cache.get()));
    }
    return cache;
  }

  std::vector<int32_t> context, query;
  std::shared_ptr<KvPagePool> pool;
  std::unique_ptr<ResidualDecoder> residual;
  float step = 0;
  const Clock* clock = &RealClock();
  LoadProblem problem;  // block_bytes are filled by Load
  SmoothCompute compute;
  std::unique_ptr<KvCache> reference;
  std::vector<float> expected;
  std::vector<std::vector<std::string>> blocks;
  absl::Duration stall_limit = absl::Seconds(30);
  std::optional<uint32_t> held_column;  // all planes of its blocks are here
  uint64_t waiting_limit = 0;
};

}  // namespace sparkv::load_testing
