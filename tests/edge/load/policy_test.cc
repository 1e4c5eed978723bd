#include "edge/load/policy.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "tests/catch.h"
#include "tests/edge/load/hand_problem.h"

namespace sparkv {
namespace {

LoadProblem SmallProblem(uint32_t columns, uint32_t layers) {
  LoadProblem p;
  p.layers = layers;
  p.column_tokens.assign(columns, kColumnTokens);
  p.block_bytes.assign(size_t{columns} * layers, 100000);
  p.compute.proj_row = 5e-6;
  p.compute.dense_row = 40e-6;
  p.compute.attend_row_key = 10e-9;
  p.compute.query_row = 50e-6;
  p.query_tokens = 32;
  p.link_bytes_per_s = 1e6;
  p.rtt_s = 0.02;
  return p;
}

// TTFT of a depth profile: both resources busy all the time, as sparkv_policy.cc's v.
double Value(const LoadProblem& p, const std::vector<uint32_t>& depth) {
  double computed = 0, left = 0, finals = 0;
  for (uint32_t t = 0; t < p.columns(); ++t) {
    computed += PrefixSeconds(p, t, depth[t]);
    for (uint32_t l = depth[t]; l < p.layers; ++l) {
      left += static_cast<double>(p.bytes(t, l));
      finals += p.final_row * p.column_tokens[t];
    }
  }
  const double q = p.query_tokens > 0 ? p.compute.Query(p.tokens(), p.query_tokens) : 0;
  double largest = 0, rows = 0;
  for (const uint64_t b : p.block_bytes) largest = std::max(largest, static_cast<double>(b));
  for (const uint32_t n : p.column_tokens) rows = std::max(rows, static_cast<double>(n));
  const double link = left > 0 ? p.rtt_s + left / p.link_bytes_per_s +
                                     p.decode_s_per_byte * largest + p.final_row * rows + q
                               : 0;
  return std::max(link, computed + finals + q * p.layers + p.decode_s_per_byte * left);
}

// Over all profiles that never grow along the context, each at least 1: compute never waits for the
// link then.
double BestByEnumeration(const LoadProblem& p) {
  std::vector<uint32_t> depth(p.columns(), 1);
  double best = 1e300;
  const std::function<void(uint32_t)> visit = [&](uint32_t t) {
    if (t == p.columns()) {
      best = std::min(best, Value(p, depth));
      return;
    }
    const uint32_t most = t == 0 ? p.layers : depth[t - 1];
    for (depth[t] = 1; depth[t] <= most; ++depth[t]) {
      if (p.DepthAllowed(depth[t])) visit(t + 1);
    }
    depth[t] = 1;
  };
  visit(0);
  return best;
}

TEST_CASE("sparkv's plan is within 3 % of the best depth profile") {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 rng(seed);
    LoadProblem p = SmallProblem(1 + rng() % 4, 2 + rng() % 5);
    for (uint64_t& b : p.block_bytes) b = 20000 + rng() % 400000;
    if (rng() % 2) p.column_tokens.back() = 1 + rng() % kColumnTokens;
    p.link_bytes_per_s = std::pow(10.0, 4.5 + (rng() % 1000) / 300.0);
    p.decode_s_per_byte = rng() % 2 ? 3e-9 : 0;
    if (rng() % 2) {
      p.first_layer_local = true;
      p.whole_columns = rng() % 2;
      p.final_row = static_cast<double>(rng() % 3) * 10e-6;
      for (uint32_t t = 0; t < p.columns(); ++t) p.block_bytes[t * p.layers] = 0;
    }
    const LoadPlan plan = MakeSparkvPolicy()->Plan(p);
    const double best = BestByEnumeration(p);
    INFO("seed " << seed);
    CHECK(Value(p, plan.depth) <= best * 1.03);
    CHECK(Value(p, plan.depth) == Approx(ProfileSeconds(p, plan.depth)));
    for (const uint32_t d : plan.depth) CHECK(p.DepthAllowed(d));
    CHECK(plan.lower_bound_s <= best * 1.0001);
    CHECK(plan.lower_bound_s > 0);
  }
}

TEST_CASE("with many columns and layers the plan is close to its lower bound") {
  for (const double mbit : {5.0, 20.0, 80.0, 320.0}) {
    LoadProblem p = SmallProblem(8, 30);
    p.link_bytes_per_s = mbit * 125000;
    const LoadPlan plan = MakeSparkvPolicy()->Plan(p);
    INFO(mbit << " Mbit/s: plan " << Value(p, plan.depth) << " s, bound " << plan.lower_bound_s
              << " s");
    CHECK(Value(p, plan.depth) <= 1.03 * plan.lower_bound_s);
  }
}

TEST_CASE("depths never grow along the context, and at least the first layer is computed") {
  for (const double rate : {1e3, 1e5, 1e6, 1e7, 1e9}) {
    LoadProblem p = SmallProblem(6, 12);
    p.column_tokens.back() = 7;
    p.link_bytes_per_s = rate;
    const LoadPlan plan = MakeSparkvPolicy()->Plan(p);
    for (uint32_t t = 0; t < p.columns(); ++t) {
      CHECK(plan.depth[t] >= 1);
      if (t > 0) CHECK(plan.depth[t] <= plan.depth[t - 1]);
    }
  }
}

TEST_CASE("worked by hand: one column, four layers") {
  // PROJ 1 s, ATTN 4 s, a block 3 s on the link; no query. Depth d takes d + 4 (d - 1) s of compute
  // and (4 - d) * 3 s of link:
  //   d    1  2   3   4
  //   K    1  6  11  16
  //   link 9  6   3   0      -> d = 2, 6 s. The bound crosses at the same point.
  const LoadProblem p = load_testing::OneColumnProblem();
  const LoadPlan plan = MakeSparkvPolicy()->Plan(p);
  CHECK(plan.depth == std::vector<uint32_t>{2});
  CHECK(plan.predicted_s == Approx(6));
  CHECK(plan.lower_bound_s <= 6.0001);
  CHECK(plan.order == std::vector<BlockRef>{{0, 2}, {0, 3}});
}

// Layer 0 is never sent; PROJ 1 s, ATTN 4 s, a block 3 s on the link, FINAL of a block `final` s.
LoadProblem FinalProblem(double final) {
  LoadProblem p = load_testing::OneColumnProblem();
  p.block_bytes[0] = 0;
  p.final_row = final / 1000;
  p.first_layer_local = true;
  return p;
}

TEST_CASE("worked by hand: FINAL takes the device's time and ends the link's") {
  // Depth d: compute d + 4 (d - 1) + f (4 - d), link 3 (4 - d) + f.
  //   f = 0.5:  d     1     2     3    4        f = 6:  d     1    2    3    4
  //             K   2.5   7.0  11.5   16                K    19   18   17   16
  //          link   9.5   6.5   3.5    0             link    15   12    9    0
  LoadPlan plan = MakeSparkvPolicy()->Plan(FinalProblem(0.5));
  CHECK(plan.depth == std::vector<uint32_t>{2});
  CHECK(plan.predicted_s == Approx(7));
  CHECK(plan.order == std::vector<BlockRef>{{0, 2}, {0, 3}});
  plan = MakeSparkvPolicy()->Plan(FinalProblem(6));
  CHECK(plan.depth == std::vector<uint32_t>{4});
  CHECK(plan.predicted_s == Approx(16));
  // Streamed from layer 1 on.
  plan = MakeStreamPolicy()->Plan(FinalProblem(0.5));
  CHECK(plan.depth == std::vector<uint32_t>{1});
  CHECK(plan.order.size() == 3);
  CHECK(plan.predicted_s == Approx(9.5));
}

TEST_CASE("worked by hand: a whole column is streamed or computed") {
  // From the table above: 9.5 s against 16 s; with 9 s a block 27.5 s against 16 s.
  LoadProblem p = FinalProblem(0.5);
  p.whole_columns = true;
  CHECK(MakeSparkvPolicy()->Plan(p).depth == std::vector<uint32_t>{1});
  p.link_bytes_per_s = 1000.0 / 3;
  const LoadPlan plan = MakeSparkvPolicy()->Plan(p);
  CHECK(plan.depth == std::vector<uint32_t>{4});
  CHECK(plan.predicted_s == Approx(16));
  CHECK(plan.order.empty());
}

TEST_CASE("depths are fitted to what the codec allows") {
  LoadProblem p = SmallProblem(5, 6);
  std::vector<uint32_t> depth{0, 1, 2, 5, 9};
  FitDepths(p, &depth);
  CHECK(depth == std::vector<uint32_t>{0, 1, 2, 5, 6});
  p.first_layer_local = true;
  FitDepths(p, &depth);
  CHECK(depth == std::vector<uint32_t>{1, 1, 2, 5, 6});
  p.whole_columns = true;
  FitDepths(p, &depth);
  CHECK(depth == std::vector<uint32_t>{1, 1, 1, 6, 6});
}

TEST_CASE("no policy orders a first layer that is never sent") {
  LoadProblem p = SmallProblem(3, 4);
  p.first_layer_local = true;
  for (uint32_t t = 0; t < 3; ++t) p.block_bytes[t * 4] = 0;
  for (const bool whole : {false, true}) {
    p.whole_columns = whole;
    for (const char* name : {"sparkv", "sparkv-paper", "stream", "local", "cake", "static"}) {
      INFO(name);
      const LoadPlan plan = (*MakePolicy(name))->Plan(p);
      for (const uint32_t d : plan.depth) CHECK(p.DepthAllowed(d));
      for (const BlockRef& block : plan.order) CHECK(block.layer >= 1);
    }
    const std::vector<BlockRef> cake = MakeCakePolicy()->Plan(p).order;
    CHECK(cake.front() == (whole ? BlockRef{2, 1} : BlockRef{2, 3}));
    CHECK(cake.size() == 9);
    for (const BlockRef& block : MakeGivenPolicy({0, 1, 3})->Plan(p).order) CHECK(block.layer >= 1);
  }
}

TEST_CASE("worked by hand: the cheap column is computed deeper") {
  // No history cost in column 0, so much in column 1 that its ATTN never pays: K_0 = 5 d - 4, K_1 =
  // 1 (depth 1). Link 1 s a block: 3 + (4 - d_0) s against K: d_0 = 2 gives max(5, 7), d_0 = 1
  // gives max(6, 2) -> 6 s.
  LoadProblem p;
  p.layers = 4;
  p.column_tokens = {kColumnTokens, kColumnTokens};
  p.block_bytes.assign(8, 1000);
  p.link_bytes_per_s = 1000;
  p.compute.proj_row = 1.0 / kColumnTokens;
  p.compute.dense_row = 4.0 / kColumnTokens;
  CHECK(MakeSparkvPolicy()->Plan(p).depth == std::vector<uint32_t>{1, 1});
  // At half the link: 2 (3 + 4 - d_0) s: d_0 = 2 gives max(10, 7), d_0 = 3 gives max(8, 12) -> 10
  // s.
  p.link_bytes_per_s = 500;
  const LoadPlan plan = MakeSparkvPolicy()->Plan(p);
  CHECK(plan.depth == std::vector<uint32_t>{2, 1});
  CHECK(plan.predicted_s == Approx(10));
}

TEST_CASE("many random blocks: the plan is within 3 % of its bound") {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 rng(seed);
    LoadProblem p = SmallProblem(8 + rng() % 16, 24 + rng() % 16);
    for (uint64_t& b : p.block_bytes) b = 50000 + rng() % 100000;
    p.link_bytes_per_s = std::pow(10.0, 5.5 + (rng() % 1000) / 500.0);
    const LoadPlan plan = MakeSparkvPolicy()->Plan(p);
    INFO("seed " << seed << ": plan " << Value(p, plan.depth) << ", bound " << plan.lower_bound_s);
    CHECK(Value(p, plan.depth) == Approx(plan.predicted_s));
    CHECK(plan.predicted_s <= 1.03 * plan.lower_bound_s);
  }
}

TEST_CASE("the fetch window holds three blocks or a round trip, whichever is more") {
  LoadProblem p = SmallProblem(2, 2);
  p.block_bytes = {1000, 400000, 1000, 1000};
  CHECK(FetchWindowBytes(p) == 1200000);
  p.link_bytes_per_s = 1e8;
  CHECK(FetchWindowBytes(p) == 4000000);
  p.rtt_s = 10;
  CHECK(FetchWindowBytes(p) == 64u << 20);
  p = SmallProblem(1, 1);
  p.block_bytes = {10};
  CHECK(FetchWindowBytes(p) == 512u << 10);
  p.block_bytes = {uint64_t{1} << 62};
  CHECK(FetchWindowBytes(p) == 64u << 20);
  p.link_bytes_per_s = 0;
  CHECK(FetchWindowBytes(p) == 0);
}

TEST_CASE("a dead link means local, a very fast one means stream but for layer 0") {
  LoadProblem p = SmallProblem(3, 4);
  p.link_bytes_per_s = 0;
  CHECK(MakeSparkvPolicy()->Plan(p).depth == std::vector<uint32_t>{4, 4, 4});
  CHECK(MakeSparkvPolicy()->Plan(p).order.empty());
  p.link_bytes_per_s = 1e12;
  p.rtt_s = 0;
  CHECK(MakeSparkvPolicy()->Plan(p).depth == std::vector<uint32_t>{1, 1, 1});
}

TEST_CASE(
    "every policy covers each block exactly once by depth or order, but for Cake, which offers all "
    "on both sides") {
  const LoadProblem p = SmallProblem(3, 5);
  for (const char* name : {"sparkv", "stream", "local"}) {
    const LoadPlan plan = (*MakePolicy(name))->Plan(p);
    std::vector<int> covered(15, 0);
    for (uint32_t t = 0; t < 3; ++t) {
      for (uint32_t l = 0; l < plan.depth[t]; ++l) ++covered[t * 5 + l];
    }
    for (const BlockRef& b : plan.order) ++covered[b.column * 5 + b.layer];
    INFO(name);
    CHECK(std::count(covered.begin(), covered.end(), 1) == 15);
  }
  const LoadPlan cake = (*MakePolicy("cake"))->Plan(p);
  CHECK(cake.order.size() == 15);
  CHECK(cake.order.front() == BlockRef{2, 4});
  CHECK(cake.order.back() == BlockRef{0, 0});
  CHECK_FALSE(cake.pipelined_query);
  const auto unknown = MakePolicy("fast");
  CHECK(unknown.status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("the stream's order is layer by layer") {
  const LoadProblem p = SmallProblem(2, 3);
  const auto order = LayerMajorOrder(p, {2, 1});
  CHECK(order == std::vector<BlockRef>{{1, 1}, {0, 2}, {1, 2}});
}

TEST_CASE("worked by hand: the paper's greedy on one column") {
  // PROJ 1 s, ATTN 4 s, a block 3 s on the link; one block a stage, for a stage lasts .1 s.
  //   t_comp = 5, 5, 5, 1 (the last layer needs no ATTN); t_stream = 3.
  //   w_c(l) = 1/5 + 1/5, and 1/5 + 1/1 of layer 2, whose computing makes layer 3 ready; w_s = 1/3,
  //   for a streamed block makes nothing of its column ready; equal ones go in order.
  //   Stage 1: compute 0, stream 1. Then nothing can be computed, and 2 and 3 are streamed.
  const LoadProblem p = load_testing::OneColumnProblem();
  const LoadPlan plan = MakeSparkvPaperPolicy()->Plan(p);
  CHECK(plan.depth == std::vector<uint32_t>{1});
  CHECK(plan.order == std::vector<BlockRef>{{0, 1}, {0, 2}, {0, 3}});
  CHECK_FALSE(plan.pipelined_query);
}

TEST_CASE("worked by hand: the paper's greedy streams what unlocks later columns") {
  // Two columns of two layers. Streaming (0, 0) makes (1, 0) ready: w_s = 1/t_s + 1/t_c.
  LoadProblem p;
  p.layers = 2;
  p.column_tokens = {kColumnTokens, kColumnTokens};
  p.block_bytes.assign(4, 1000);
  p.link_bytes_per_s = 1000;
  p.compute.proj_row = 1.0 / kColumnTokens;
  p.compute.dense_row = 1.0 / kColumnTokens;
  const LoadPlan plan = MakeSparkvPaperPolicy()->Plan(p);
  // Stage 1 computes (0, 0), which readies (0, 1) and (1, 0), and streams the first of those left
  // with the highest weight: none unlocks more than another, so (0, 1).
  // Stage 2 computes (1, 0), the only ready block, and streams (1, 1).
  CHECK(plan.depth == std::vector<uint32_t>{1, 1});
  CHECK(plan.order == std::vector<BlockRef>{{0, 1}, {1, 1}});
}

}  // namespace
}  // namespace sparkv
