#include "edge/cli/timeline.h"

#include <limits>

#include "tests/catch.h"

namespace sparkv::cli {
namespace {

void Add(v1::GenerateResponse::Result* result, v1::BlockEvent::Kind kind, uint32_t column,
         uint32_t layer, float begin, float end) {
  v1::BlockEvent* event = result->add_timeline();
  event->set_kind(kind);
  event->set_column(column);
  event->set_layer(layer);
  event->set_begin_ms(begin);
  event->set_end_ms(end);
}

TEST_CASE("blocks are drawn where and when they came, the query on top") {
  v1::GenerateResponse::Result result;
  Add(&result, v1::BlockEvent::COMPUTED, 0, 0, 0, 40);
  Add(&result, v1::BlockEvent::STREAMED, 1, 0, 30, 50);
  Add(&result, v1::BlockEvent::STREAMED, 0, 1, 50, 90);
  Add(&result, v1::BlockEvent::QUERY, 0, 0, 85, 99);
  Add(&result, v1::BlockEvent::QUERY, 0, 1, 95, 100);
  CHECK(DrawTimeline(result, 30, 10) ==
        "layer  0 ms100 ms\n"
        "    1  .....aaaa*\n"
        "    0  AAAbbb..**\n"
        "       a-z streamed, A-Z computed here (context columns 0..1: a..b), * query, . idle\n");
}

TEST_CASE("layers share rows when there are many") {
  v1::GenerateResponse::Result result;
  for (uint32_t layer = 0; layer < 5; ++layer)
    Add(&result, v1::BlockEvent::COMPUTED, 0, layer, 0, 10);
  CHECK(DrawTimeline(result, 2, 10).find("  3-4  AAAAAAAAAA\n  0-2  AAAAAAAAAA\n") !=
        std::string::npos);
}

TEST_CASE("nothing to draw and nonsense give no picture and no crash") {
  v1::GenerateResponse::Result result;
  CHECK(DrawTimeline(result, 30, 80).empty());
  Add(&result, v1::BlockEvent::COMPUTED, 0, 0, std::numeric_limits<float>::quiet_NaN(), 1);
  CHECK(DrawTimeline(result, 30, 80).empty());
  Add(&result, v1::BlockEvent::COMPUTED, 7, 0, -5, 3);
  CHECK_FALSE(DrawTimeline(result, 30, 80).empty());
}

}  // namespace
}  // namespace sparkv::cli
