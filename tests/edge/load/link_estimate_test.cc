#include "edge/load/link_estimate.h"

#include "tests/catch.h"

namespace sparkv {
namespace {

// `pieces` arrivals of `bytes`, one each `every` seconds from `from` on.
double Feed(LinkEstimate* link, double from, double every, uint64_t bytes, int pieces,
            uint64_t* sum) {
  for (int i = 0; i < pieces; ++i) {
    from += every;
    *sum += bytes;
    link->OnBytes(from, *sum);
  }
  return from;
}

TEST_CASE("a rate follows what comes, and the prior is soon forgotten") {
  LinkEstimate link(1e9);
  CHECK(link.BytesPerSecond(0) == 1e9);
  link.SetBusy(0, true);
  uint64_t sum = 0;
  double now = Feed(&link, 0, 0.01, 10000, 100, &sum);
  CHECK(link.BytesPerSecond(now) == Approx(1e6).epsilon(0.01));
  // A fourth of the rate is seen within a quarter of a second.
  now = Feed(&link, now, 0.04, 10000, 6, &sum);
  CHECK(link.BytesPerSecond(now) <= 0.3e6);
  now = Feed(&link, now, 0.0033333, 10000, 75, &sum);
  CHECK(link.BytesPerSecond(now) == Approx(3e6).epsilon(0.05));
}

TEST_CASE("silence lowers the rate, and ends it after a second") {
  LinkEstimate link(1e6);
  link.SetBusy(0, true);
  uint64_t sum = 0;
  const double now = Feed(&link, 0, 0.01, 10000, 50, &sum);
  CHECK(link.BytesPerSecond(now + 0.3) < 0.5e6);
  CHECK(link.SilentSeconds(now + 0.3) == Approx(0.3));
  CHECK(link.BytesPerSecond(now + 1.01) == 0);
  // What comes after it counts again.
  sum += 10000;
  link.OnBytes(now + 2, sum);
  CHECK(link.BytesPerSecond(now + 2) > 0);
}

TEST_CASE("a link that has nothing to bring is not silent") {
  LinkEstimate link(1e6);
  link.SetBusy(0, true);
  uint64_t sum = 0;
  double now = Feed(&link, 0, 0.01, 10000, 50, &sum);
  link.SetBusy(now, false);
  CHECK(link.SilentSeconds(now + 100) == 0);
  CHECK(link.BytesPerSecond(now + 100) == Approx(1e6).epsilon(0.02));
  link.SetBusy(now + 100, true);
  now = Feed(&link, now + 100, 0.01, 10000, 20, &sum);
  CHECK(link.BytesPerSecond(now) == Approx(1e6).epsilon(0.02));
}

TEST_CASE("a link that never brought anything") {
  LinkEstimate link(1e6);
  link.SetBusy(0, true);
  CHECK(link.BytesPerSecond(0.1) == 1e6);
  CHECK(link.BytesPerSecond(0.9) < 0.5e6);
  CHECK(link.BytesPerSecond(1.1) == 0);
}

}  // namespace
}  // namespace sparkv
