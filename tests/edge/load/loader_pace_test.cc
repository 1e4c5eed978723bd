// Who does what when the link or the device is slower or faster than the plan says. The clock moves
// when the test says so, and threads meet at hooks, so nothing here depends on the machine's speed.
#include <thread>

#include "edge/load/loader.h"
#include "tests/catch.h"
#include "tests/edge/load/loader_fixture.h"

namespace sparkv::load_testing {
namespace {

TEST_CASE("compute that outlasts the stream by far is no stall") {
  Fixture f(2100, 4);
  TestClock clock;
  f.clock = &clock;
  f.stall_limit = absl::Seconds(15);
  ScriptedStream stream(f.blocks, kGeometry.layers);
  f.compute.after_project = [&] {
    stream.AwaitIdle();
    clock.Advance(absl::Seconds(10));
  };
  KvCache cache(f.pool);
  const auto result = f.Load(&stream, {3, 2, 1}, &cache);
  REQUIRE_OK(result);
  CHECK(result->degraded.empty());
  CHECK(result->blocks_streamed == 3);
  CHECK(result->total_s > 15);
}

TEST_CASE("a stream that is through early goes on with blocks planned for compute") {
  Fixture f(3000, 4);
  ScriptedStream stream(f.blocks, kGeometry.layers);
  f.compute.after_project = [&] { stream.AwaitIdle(); };
  KvCache cache(f.pool);
  const auto result = f.Load(&stream, {}, &cache,
                             std::make_unique<ConservingPolicy>(std::vector<uint32_t>{3, 3, 2}));
  REQUIRE_OK(result);
  // Compute waited in (0, 0); the stream brought all but the first layers, which cost next to
  // nothing.
  CHECK(result->blocks_computed == 3);
  CHECK(result->blocks_streamed == 6);
  CHECK(result->degraded.empty());
  CHECK(result->last_hidden == f.expected);
  f.CheckEqual(cache);
}

TEST_CASE("a block that compute takes is cancelled at the stream, all its planes") {
  Fixture f(3000, 4, "generic");
  REQUIRE(f.planes > 1);
  ScriptedStream stream(f.blocks, kGeometry.layers);
  stream.silent_after = 0;
  KvCache cache(f.pool);
  const auto result = f.Load(&stream, {}, &cache, MakeCakePolicy());
  REQUIRE_OK(result);
  CHECK(result->blocks_computed == 9);
  CHECK(stream.cancelled == LoadController::kLeastBlocks * f.planes);  // what was under way
}

TEST_CASE("compute that has done its part takes blocks from a stream that brings nothing") {
  Fixture f(3000, 4);
  TestClock clock(20000);
  f.clock = &clock;
  f.stall_limit = absl::Hours(1);  // nobody gives the stream up
  ScriptedStream stream(f.blocks, kGeometry.layers);
  stream.silent_after = 0;
  KvCache cache(f.pool);
  const auto result = f.Load(&stream, {}, &cache,
                             std::make_unique<ConservingPolicy>(std::vector<uint32_t>{1, 1, 1}));
  REQUIRE_OK(result);
  CHECK(result->blocks_computed == 9);
  CHECK(result->last_hidden == f.expected);
  f.CheckEqual(cache);
}

TEST_CASE("a cancelled load stops while it waits for the stream") {
  Fixture f(1500, 4);
  f.stall_limit = absl::Hours(1);
  ScriptedStream stream(f.blocks, kGeometry.layers);
  stream.silent_after = 2;
  stream.when_silent = [&] { f.compute.cancel.Cancel(); };
  KvCache cache(f.pool);
  CHECK(f.Load(&stream, {0, 0}, &cache).status().code() == absl::StatusCode::kCancelled);
}

TEST_CASE("the planes of a level make a block together") {
  Fixture f(1500, 4, "generic");
  REQUIRE(f.planes > 1);
  ScriptedStream stream(f.blocks, kGeometry.layers);
  KvCache cache(f.pool);
  const auto result = f.Load(&stream, {0, 0}, &cache);
  REQUIRE_OK(result);
  CHECK(result->blocks_streamed == 6);
  for (uint32_t t = 0; t < 2; ++t) {
    for (uint32_t l = 0; l < kGeometry.layers; ++l) {
      const BlockShape shape{kGeometry.kv_heads, f.problem.column_tokens[t], kGeometry.head_dim};
      std::vector<std::span<const uint8_t>> planes;
      for (uint32_t p = 0; p < f.planes; ++p) {
        const std::string& plane = f.blocks[t * kGeometry.layers + l][p];
        planes.emplace_back(reinterpret_cast<const uint8_t*>(plane.data()), plane.size());
      }
      std::vector<uint16_t> k(shape.elements()), v(k), got_k(k), got_v(k);
      REQUIRE_OK(f.decoder->DecodeBlock(shape, planes, k.data(), v.data()));
      REQUIRE_OK(
          cache.ExportBlock(l, f.problem.begin(t), shape.tokens, got_k.data(), got_v.data()));
      CHECK(got_k == k);
      CHECK(got_v == v);
    }
  }
}

TEST_CASE("a plane that fails makes its block computed, whatever comes of the other planes") {
  Fixture f(1500, 4, "generic");
  for (int at = 0; at < 4; ++at) {
    ScriptedStream stream(f.blocks, kGeometry.layers);
    stream.fail_at = at;
    KvCache cache(f.pool);
    const auto result = f.Load(&stream, {0, 0}, &cache);
    REQUIRE_OK(result);
    CHECK(result->degraded.size() == 1);
    CHECK(result->blocks_computed == 1);
    CHECK(result->blocks_streamed == 5);
    CHECK(stream.cancelled == f.planes);
  }
}

TEST_CASE("a link that is slower than thought lowers the level of what is still to come") {
  Fixture f(3000, 4, "generic");
  REQUIRE(f.planes == 2);
  TestClock clock;
  f.clock = &clock;
  f.problem.link_bytes_per_s = 1e9;
  for (const bool slow : {false, true}) {
    ScriptedStream stream(f.blocks, kGeometry.layers);
    f.levels = {{.planes = 1}, {.planes = 2}};
    for (const auto& block : f.blocks) {
      f.levels[0].block_bytes.push_back(block[0].size());
      f.levels[1].block_bytes.push_back(block[0].size() + block[1].size());
    }
    f.slo = absl::Seconds(20);
    // The first block comes; then the load looks at the rate: fast or not, it is 10 s later.
    stream.before_item = [&](int sent) {
      if (sent != 2) return;
      clock.Advance(absl::Seconds(slow ? 10 : 1));
      if (slow) {
        while (stream.cancelled.load() == 0) std::this_thread::yield();
      }
    };
    KvCache cache(f.pool);
    const auto result = f.Load(&stream, {0, 0, 0}, &cache);
    REQUIRE_OK(result);
    CHECK(result->degraded.empty());
    CHECK(result->blocks_streamed == 9);
    CHECK(result->least_planes == (slow ? 1 : 2));
    CHECK(stream.cancelled == (slow ? LoadController::kLeastBlocks : 0));  // second planes
  }
}

}  // namespace
}  // namespace sparkv::load_testing
