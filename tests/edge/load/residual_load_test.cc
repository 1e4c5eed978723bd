// Loads whose blocks are finished from the bottom up: splits, levels, orders of arrival, faults.
#include <algorithm>
#include <cmath>
#include <random>

#include "edge/load/loader.h"
#include "tests/catch.h"
#include "tests/edge/load/residual_fixture.h"

namespace sparkv::load_testing {
namespace {

constexpr uint32_t kLayers = kResidualGeometry.layers;

double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(double{a[i]} - b[i]));
  return most;
}

TEST_CASE("every split at level 1 gives K and V within the level's error") {
  for (const uint32_t tokens : {1u, 300u, 1100u, 2100u}) {
    ResidualFixture f(tokens);
    const uint32_t columns = f.problem.columns();
    const auto splits = static_cast<uint32_t>(std::pow(kLayers, columns));
    for (uint32_t split = 0; split < splits; ++split) {
      std::vector<uint32_t> depth;
      for (uint32_t t = 0, rest = split; t < columns; ++t, rest /= kLayers)
        depth.push_back(1 + rest % kLayers);
      ScriptedStream stream(f.blocks, kLayers);
      KvCache cache(f.pool);
      const auto result = f.Load(&stream, 1, depth, &cache);
      REQUIRE_OK(result);
      INFO("tokens " << tokens << " split " << split);
      CHECK(result->degraded.empty());
      uint32_t computed = 0;
      for (const uint32_t d : depth) computed += d;
      CHECK(result->blocks_computed == computed);
      CHECK(result->blocks_streamed == columns * kLayers - computed);
      CHECK(stream.ordered_of_first_layer == 0);
      f.CheckClose(cache, 1);
      CHECK(Difference(result->last_hidden, f.expected) < 0.1);
      if (computed == columns * kLayers) f.CheckSame(cache, *f.reference);
    }
  }
}

TEST_CASE("above level 1 columns are whole, and more planes are closer") {
  ResidualFixture f(2100);
  double before = 1e9;
  for (uint32_t planes = 1; planes <= 5; ++planes) {
    for (const auto& depth : {std::vector<uint32_t>{1, 1, 1}, {4, 1, 1}, {3, 1, 2}, {4, 4, 4}}) {
      ScriptedStream stream(f.blocks, kLayers);
      KvCache cache(f.pool);
      const auto result = f.Load(&stream, planes, depth, &cache);
      REQUIRE_OK(result);
      CHECK(result->degraded.empty());
      f.CheckClose(cache, planes);
      if (planes > 1) {
        for (const uint32_t d : result->plan.depth) CHECK((d == 1 || d == kLayers));
      }
      if (depth == std::vector<uint32_t>{1, 1, 1}) {
        f.CheckSame(cache, *f.Decoded(planes));
        const double error = f.TotalError(cache);
        CHECK(error < before);
        before = error;
      }
    }
  }
}

TEST_CASE("each policy gives K and V within the level's error") {
  for (const bool predicts : {true, false}) {
    ResidualFixture f(2500, 5, predicts);
    for (const char* name : {"sparkv", "sparkv-paper", "stream", "local", "cake", "static"}) {
      for (const uint32_t planes : {1u, 3u}) {
        ScriptedStream stream(f.blocks, kLayers);
        KvCache cache(f.pool);
        const auto result = f.Load(&stream, planes, {}, &cache, *MakePolicy(name));
        INFO(name << ", " << planes << " planes, predicts " << predicts);
        REQUIRE_OK(result);
        CHECK(result->degraded.empty());
        CHECK(result->blocks_streamed + result->blocks_computed == 3 * kLayers);
        CHECK(stream.ordered_of_first_layer == 0);
        f.CheckClose(cache, planes);
      }
    }
  }
}

TEST_CASE("a codec that does not predict is finished by the worker, in any order") {
  ResidualFixture f(2100, 5, /*predicts=*/false);
  ScriptedStream stream(f.blocks, kLayers);
  KvCache cache(f.pool);
  f.compute.parallel_calls = 0;
  const auto result = f.Load(&stream, 2, {}, &cache, ReversedPolicy({1, 2, 1}));
  REQUIRE_OK(result);
  CHECK(f.compute.parallel_calls == 0);
  CHECK(result->blocks_streamed == 8);
  CHECK(result->final_s > 0);
  f.CheckClose(cache, 2);
}

TEST_CASE("the order of arrival changes nothing") {
  ResidualFixture f(2100);
  for (const uint32_t planes : {1u, 2u}) {
    const auto decoded = f.Decoded(planes);
    for (uint32_t seed = 0; seed < 20; ++seed) {
      ScriptedStream stream(f.blocks, kLayers);
      stream.shuffle.emplace(seed);
      KvCache cache(f.pool);
      const auto result =
          f.Load(&stream, planes, {}, &cache, ShuffledPolicy({1, 1, 1}, seed));
      INFO("seed " << seed << ", " << planes << " planes");
      REQUIRE_OK(result);
      CHECK(result->blocks_streamed == 9);
      CHECK(result->final_s > 0);
      f.CheckSame(cache, *decoded);
    }
  }
}

TEST_CASE("symbols that wait for FINAL are bounded, the rest waits as it came") {
  ResidualFixture f(6000);
  const auto decoded = f.Decoded(1);
  f.waiting_limit = 2 * f.SymbolBytes();
  // The top layers come first, and nothing can be finished until the last items are here.
  ScriptedStream stream(f.blocks, kLayers);
  f.compute.after_project = [&] {
    stream.AwaitIdle();
  };
  KvCache cache(f.pool);
  const auto result = f.Load(&stream, 1, {}, &cache, ReversedPolicy(std::vector<uint32_t>(6, 1)));
  REQUIRE_OK(result);
  CHECK(result->degraded.empty());
  CHECK(result->blocks_streamed == 18);
  CHECK(result->waiting_bytes >= f.SymbolBytes());
  // One more, that FINAL waits for, and the four exact tokens.
  CHECK(result->waiting_bytes <= (2 + 1) * f.SymbolBytes() + 4096);
  f.CheckSame(cache, *decoded);
}

TEST_CASE("faults of the stream end in the right K and V with a reason") {
  ResidualFixture f(1100);
  for (const uint32_t planes : {1u, 3u}) {
    for (int fault = 0; fault < 4; ++fault) {
      for (const int at : {0, 1, 3, 5}) {
        for (const bool shuffled : {false, true}) {
          ScriptedStream stream(f.blocks, kLayers);
          if (fault == 0) stream.break_after = at;
          if (fault == 1) stream.fail_at = at;
          if (fault == 2) stream.corrupt_at = at;
          if (fault == 3) stream.silent_after = at;
          f.stall_limit = fault == 3 ? absl::Milliseconds(50) : absl::Seconds(30);
          const auto seed = static_cast<uint32_t>(at);
          if (shuffled) stream.shuffle.emplace(seed);
          KvCache cache(f.pool);
          const auto result =
              f.Load(&stream, planes, {1, 1}, &cache,
                     shuffled ? ShuffledPolicy({1, 1}, seed) : nullptr);
          INFO("fault " << fault << " at " << at << ", " << planes << " planes, shuffled "
                        << shuffled);
          REQUIRE_OK(result);
          REQUIRE_FALSE(result->degraded.empty());
          CHECK(result->blocks_streamed + result->blocks_computed == 8);
          f.CheckClose(cache, planes);
        }
      }
    }
  }
}

TEST_CASE("above level 1 nothing is streamed above a computed layer") {
  ResidualFixture f(2100);
  for (int at = 0; at < 9; ++at) {
    ScriptedStream stream(f.blocks, kLayers);
    stream.fail_at = 2 * at;
    KvCache cache(f.pool);
    const auto result = f.Load(&stream, 2, {1, 1, 1}, &cache);
    REQUIRE_OK(result);
    std::vector<uint32_t> lowest_computed(3, kLayers), highest_streamed(3, 0);
    for (const LoadEvent& e : result->timeline) {
      if (e.kind == LoadEvent::Kind::kComputed && e.layer > 0)
        lowest_computed[e.column] = std::min(lowest_computed[e.column], e.layer);
      if (e.kind == LoadEvent::Kind::kStreamed)
        highest_streamed[e.column] = std::max(highest_streamed[e.column], e.layer);
    }
    for (uint32_t t = 0; t < 3; ++t) CHECK(highest_streamed[t] < lowest_computed[t]);
    f.CheckClose(cache, 2);
  }
}

TEST_CASE("a load with FINAL under way can be cancelled") {
  ResidualFixture f(3000);
  f.stall_limit = absl::Hours(1);
  ScriptedStream stream(f.blocks, kLayers);
  stream.silent_after = 4;
  stream.when_silent = [&] { f.compute.cancel.Cancel(); };
  KvCache cache(f.pool);
  CHECK(f.Load(&stream, 1, {1, 1, 1}, &cache).status().code() == absl::StatusCode::kCancelled);
}

TEST_CASE("compute that has done its part takes blocks from a stream that brings nothing more") {
  for (const uint32_t planes : {1u, 2u}) {
    for (const int silent_after : {0, 3, 6}) {
      ResidualFixture f(2500);
      TestClock clock(20000);
      f.clock = &clock;
      f.stall_limit = absl::Hours(1);  // nobody gives the stream up
      ScriptedStream stream(f.blocks, kLayers);
      stream.silent_after = silent_after;
      KvCache cache(f.pool);
      const auto result =
          f.Load(&stream, planes, {}, &cache,
                 std::make_unique<ConservingPolicy>(std::vector<uint32_t>{1, 1, 1}));
      INFO(planes << " planes, silent after " << silent_after);
      REQUIRE_OK(result);
      CHECK(result->blocks_computed + result->blocks_streamed == 12);
      if (silent_after == 0) f.CheckSame(cache, *f.reference);
      f.CheckClose(cache, planes);
    }
  }
}

TEST_CASE("a stream that is through early brings what was planned for compute") {
  for (const uint32_t planes : {1u, 2u}) {
    ResidualFixture f(2500);
    ScriptedStream stream(f.blocks, kLayers);
    f.compute.after_project = [&] {
      stream.AwaitIdle();
    };
    KvCache cache(f.pool);
    const auto result = f.Load(&stream, planes, {}, &cache,
                               std::make_unique<ConservingPolicy>(std::vector<uint32_t>{4, 4, 1}));
    REQUIRE_OK(result);
    CHECK(result->blocks_computed == 3);  // compute waited in PROJ of the first layers
    CHECK(result->blocks_streamed == 9);
    f.CheckSame(cache, *f.Decoded(planes));
  }
}

}  // namespace
}  // namespace sparkv::load_testing
