#include "edge/net/token_bucket.h"

#include "tests/catch.h"

namespace sparkv {
namespace {

TEST_CASE("bytes leave at the rate, one after the other") {
  TokenBucket bucket(*RateTrace::Constant(8));  // 1 MB/s
  CHECK(bucket.Send(0, 500000) == Approx(0.5));
  CHECK(bucket.Send(0.1, 250000) == Approx(0.75));  // behind the first
  CHECK(bucket.Send(2, 100000) == Approx(2.1));     // the link was idle
}

TEST_CASE("a trace is followed through its intervals, outages and rounds") {
  const RateTrace trace = *RateTrace::Intervals({8, 0, 16}, 1);
  CHECK(trace.FinishTime(0, 500000) == Approx(0.5));
  CHECK(trace.FinishTime(0, 1000000) == Approx(1.0));
  CHECK(trace.FinishTime(0, 1500000) == Approx(2.25));  // half a megabyte waits for second 2
  CHECK(trace.FinishTime(0.5, 1000000) == Approx(2.25));
  CHECK(trace.FinishTime(0, 3000000) == Approx(3.0));  // one whole round
  CHECK(trace.FinishTime(0, 6500000) == Approx(6.5));
  CHECK(trace.FinishTime(1.2, 0) == Approx(1.2));
  CHECK(trace.At(1.5) == 0);
  CHECK(trace.At(5.5) == 16);
}

TEST_CASE("an unlimited link takes no time") {
  TokenBucket bucket{RateTrace()};
  CHECK(bucket.Send(3, uint64_t{1} << 40) == 3);
}

TEST_CASE("a new rate holds from now on") {
  TokenBucket bucket(*RateTrace::Constant(8));
  CHECK(bucket.Send(0, 4000000) == Approx(4));
  bucket.SetRate(*RateTrace::Constant(80), 1);
  CHECK(bucket.Send(1, 1000000) == Approx(1.1));
}

TEST_CASE("traces are read from text, and bad ones are refused by line") {
  const auto trace = RateTrace::Parse("# a link\ninterval 0.5\n10\n20 # better\n", "t");
  REQUIRE_OK(trace);
  CHECK(trace->At(0.6) == 20);
  CHECK(RateTrace::Parse("10\nfast\n", "t").status().message() ==
        "t:2: expected Mbit/s or \"interval SECONDS\", got \"fast\"");
  CHECK_FALSE(RateTrace::Parse("", "t").ok());
  CHECK_FALSE(RateTrace::Parse("0\n0\n", "t").ok());
  CHECK_FALSE(RateTrace::Parse("-1\n", "t").ok());
  CHECK_FALSE(RateTrace::Parse("nan\n", "t").ok());
  CHECK_FALSE(RateTrace::Parse("interval 0\n5\n", "t").ok());
  CHECK_FALSE(
      RateTrace::Parse("interval 1e-9\n5\n", "t").ok());  // a long look ahead would take for ever
  CHECK(RateTrace::Parse("interval 0.001\n5\n", "t").ok());
  CHECK_FALSE(RateTrace::Constant(0).ok());
  CHECK_FALSE(RateTrace::Constant(-5).ok());
}

}  // namespace
}  // namespace sparkv
