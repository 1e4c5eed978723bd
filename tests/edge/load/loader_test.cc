// Splits, policies and faults; the stream delivers as fast as it can.
#include "edge/load/loader.h"

#include <cmath>

#include "tests/catch.h"
#include "tests/edge/load/loader_fixture.h"

namespace sparkv::load_testing {
namespace {

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
  for (const char* name : {"sparkv", "sparkv-paper", "stream", "local", "cake", "static"}) {
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
}  // namespace sparkv::load_testing
