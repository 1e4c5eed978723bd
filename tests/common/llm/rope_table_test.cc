#include "common/llm/rope_table.h"

#include <cmath>

#include "tests/catch.h"

using namespace sparkv;

TEST_CASE("angles are exact far out and do not change when the table grows") {
  RopeConfig config{.kind = RopeKind::kInterleaved, .dim = 8, .base = 100000.0};
  config.frequency_factors = {1.0f, 1.0f, 2.0f, 8.0f};
  config.frequency_scale = 0.5;
  RopeTable table(config);
  table.Reserve(1);
  const float first = table.Cos(0)[2];
  table.Reserve(100000);
  REQUIRE(first == 1.0f);
  for (const uint32_t p : {0u, 1u, 1023u, 1024u, 99999u}) {
    for (uint32_t i = 0; i < 4; ++i) {
      const double angle =
          p * 0.5 * std::pow(100000.0, -2.0 * i / 8.0) / config.frequency_factors[i];
      REQUIRE(table.Cos(p)[i] == Approx(std::cos(angle)).margin(1e-6));
      REQUIRE(table.Sin(p)[i] == Approx(std::sin(angle)).margin(1e-6));
    }
  }
}
