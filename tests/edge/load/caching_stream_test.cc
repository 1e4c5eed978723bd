#include "edge/load/caching_stream.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "edge/load/loader.h"
#include "tests/catch.h"
#include "tests/edge/load/residual_fixture.h"

namespace sparkv::load_testing {
namespace {

constexpr uint32_t kLayers = kResidualGeometry.layers;

std::shared_ptr<HeldPlanes> NewPlanes(uint64_t budget = 1 << 20) {
  return std::make_shared<HeldPlanes>(std::make_shared<PlaneBudget>(budget));
}

TEST_CASE("planes are kept while the budget has room, and give it back") {
  auto budget = std::make_shared<PlaneBudget>(10);
  HeldPlanes other(budget);
  {
    HeldPlanes planes(budget);
    planes.Put({0, 1, 2}, "123456");
    planes.Put({0, 1, 2}, "123456");  // is there
    planes.Put({1, 1, 2}, "12345");   // no room
    other.Put({0, 1, 2}, "1234");
    CHECK(budget->used() == 10);
    CHECK(planes.Get({0, 1, 2}) == "123456");
    CHECK_FALSE(planes.Contains({1, 1, 2}));
    CHECK_FALSE(planes.Get({0, 1, 1}).has_value());
  }
  CHECK(budget->used() == 4);
}

TEST_CASE("a higher level of a loaded context fetches its new planes only") {
  ResidualFixture f(2100);
  const auto held = NewPlanes();
  uint64_t before = 0;
  for (uint32_t planes = 1; planes <= 3; ++planes) {
    uint64_t total = 0;
    for (size_t i = 0; i < f.blocks.size(); ++i) {
      for (uint32_t p = 0; i % kLayers > 0 && p < planes; ++p) total += f.blocks[i][p].size();
    }
    CachingStream stream(std::make_unique<ScriptedStream>(f.blocks, kLayers), held);
    KvCache cache(f.pool);
    const auto result = f.Load(&stream, planes, {}, &cache, MakeStreamPolicy());
    REQUIRE_OK(result);
    CHECK(result->degraded.empty());
    CHECK(result->bytes_fetched == total - before);
    f.CheckSame(cache, *f.Decoded(planes));
    before = total;
  }
  // Nothing is missing: the inner stream is not even started, so its fault does not matter.
  auto broken = std::make_unique<ScriptedStream>(f.blocks, kLayers);
  broken->break_after = 0;
  CachingStream stream(std::move(broken), held);
  KvCache cache(f.pool);
  const auto result = f.Load(&stream, 2, {}, &cache, MakeStreamPolicy());
  REQUIRE_OK(result);
  CHECK(result->degraded.empty());
  CHECK(result->bytes_fetched == 0);
  f.CheckSame(cache, *f.Decoded(2));
}

TEST_CASE("what is held comes even when the stream breaks, and what is not is computed") {
  ResidualFixture f(2100);
  const auto held = NewPlanes();
  for (uint32_t l = 1; l < kLayers; ++l) held->Put({1, l, 0}, f.blocks[kLayers + l][0]);
  auto inner = std::make_unique<ScriptedStream>(f.blocks, kLayers);
  inner->break_after = 1;
  f.held_column = 1;
  CachingStream stream(std::move(inner), held);
  KvCache cache(f.pool);
  const auto result = f.Load(&stream, 1, {}, &cache, MakeStreamPolicy());
  REQUIRE_OK(result);
  CHECK(result->degraded.size() == 1);
  CHECK(result->blocks_streamed == 4);
  f.CheckClose(cache, 1);
}

TEST_CASE("cancelled and stopped streams deliver no more") {
  ResidualFixture f(1100);
  class Sink final : public ItemSink {
   public:
    void OnItem(const ItemRef&, std::string) override { ++items; }
    void OnItemFailed(const ItemRef&, const absl::Status&) override {}
    void OnBroken(const absl::Status&) override {}
    std::atomic<int> items{0};
  };
  Sink sink;
  const auto held = NewPlanes();
  held->Put({0, 1, 0}, "x");
  {
    CachingStream stream(std::make_unique<ScriptedStream>(f.blocks, kLayers), held);
    stream.Stop();  // never started
  }
  CachingStream stream(std::make_unique<ScriptedStream>(f.blocks, kLayers), held);
  stream.Start(&sink);
  stream.Cancel({{0, 1, 0}});
  stream.Stop();
  stream.Order({{0, 1, 0}}, false);
  stream.Stop();
  CHECK(sink.items == 0);
}

}  // namespace
}  // namespace sparkv::load_testing
