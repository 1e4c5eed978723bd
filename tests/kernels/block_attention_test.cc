#include "kernels/block_attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/panel_attention.h"
#include "tests/catch.h"
#include "tests/kernels/block_attention_cases.h"

using namespace sparkv::kernels;

TEST_CASE("the scalar twin of block attention follows the definition") {
  for (const BlockAttentionCase& c : BlockAttentionCases(2'500'000)) {
    BlockAttentionProblem p(c);
    INFO(c.Name());
    REQUIRE(BlockSparseAttentionScalar(p.args()).ok());
    REQUIRE(p.Mismatch(1e-5) == "");
  }
}

TEST_CASE("block attention follows the definition over dense and listed blocks") {
  for (const BlockAttentionCase& c : BlockAttentionCases()) {
    BlockAttentionProblem p(c);
    INFO(c.Name());
    REQUIRE(BlockSparseAttention(p.args()).ok());
    // f32 sums; scores of hundreds (spread 12) lose digits in the exponent.
    REQUIRE(p.Mismatch(c.spread > 4 ? 2e-3 : 4e-5) == "");
  }
}

TEST_CASE("paged decode follows the definition over dense and listed pages") {
  for (const BlockAttentionCase& c : DecodeAttentionCases()) {
    BlockAttentionProblem p(c);
    INFO(c.Name());
    REQUIRE(PagedDecodeAttention(p.args()).ok());
    REQUIRE(p.Mismatch(c.spread > 4 ? 2e-3 : 4e-5) == "");
  }
}

TEST_CASE("paged decode takes 64 rows, and no more") {
  BlockAttentionProblem p({.rows = 65});
  const absl::Status status = PagedDecodeAttention(p.args());
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(status.message()).find("rows is 65, at most 64") != std::string::npos);
}

TEST_CASE("attention writes log-sums and masses only where they are wanted, with the same bits") {
  for (const ListKind lists : {ListKind::kDense, ListKind::kRandom}) {
    BlockAttentionProblem with({.group = 3, .rows = 60, .begin = 700, .lists = lists});
    BlockAttentionProblem without(with.problem());
    without.args().log_sum = without.args().mass = nullptr;
    REQUIRE(BlockSparseAttention(with.args()).ok());
    REQUIRE(BlockSparseAttention(without.args()).ok());
    const size_t floats = 60 * 3 * 64;
    CHECK(std::equal(with.args().out, with.args().out + floats, without.args().out));
    CHECK(without.Mismatch(4e-5) == "");
    without.ClearOutputs();
    REQUIRE(PagedDecodeAttention(without.args()).ok());
    CHECK(without.Mismatch(4e-5) == "");
  }
}

TEST_CASE("attention has the same bits however its units are run") {
  // Backwards, and in two threads that take turns.
  const RunUnits backwards = [](size_t units, const std::function<void(size_t)>& fn) {
    for (size_t i = units; i-- > 0;) fn(i);
  };
  const RunUnits threads = [](size_t units, const std::function<void(size_t)>& fn) {
    const auto every_other = [&](size_t from) {
      for (size_t i = from; i < units; i += 2) fn(i);
    };
    std::thread other(every_other, 1);
    every_other(0);
    other.join();
  };
  for (const ListKind lists : {ListKind::kDense, ListKind::kRandom}) {
    for (const auto& [op, rows] : {std::pair{&BlockSparseAttention, size_t{290}},
                                   std::pair{&PagedDecodeAttention, size_t{33}}}) {
      const BlockAttentionCase c = {
          .kv_heads = 2, .group = 3, .rows = rows, .begin = 1200, .lists = lists};
      BlockAttentionProblem one(c);
      REQUIRE(op(one.args(), nullptr).ok());
      for (const RunUnits& run : {backwards, threads}) {
        BlockAttentionProblem two(c);
        REQUIRE(op(two.args(), run).ok());
        CHECK(std::equal(one.args().out, one.args().out + rows * 6 * 64, two.args().out));
      }
    }
  }
}

TEST_CASE("block attention refuses arguments that break the contract, by name") {
  struct Row {
    const char* word;  // in the message
    std::function<void(BlockAttentionArgs&)> spoil;
  };
  static std::vector<const uint16_t*> no_page(20, nullptr);
  static std::vector<uint32_t> begin, blocks;
  const auto lists = [](BlockAttentionArgs& a, std::vector<uint32_t> b, std::vector<uint32_t> of) {
    begin = std::move(b);
    blocks = std::move(of);
    a.lists = {begin.data(), blocks.data()};
  };
  const std::vector<Row> rows = {
      {"kv.dim", [](auto& a) { a.kv.dim = 72; }},
      {"kv.kv_heads", [](auto& a) { a.kv.kv_heads = 0; }},
      {"kv.kv_heads", [](auto& a) { a.kv.kv_heads = SIZE_MAX; }},
      {"heads", [](auto& a) { a.heads = 0; }},
      {"heads", [](auto& a) { a.heads = 5; }},
      {"heads", [](auto& a) { a.heads = SIZE_MAX - 1; }},
      {"kv.pages", [](auto& a) { a.kv.pages = 2; }},
      {"kv.tokens", [](auto& a) { a.kv.tokens = 171; }},
      {"kv.tokens", [](auto& a) { a.kv.tokens = SIZE_MAX; }},
      {"kv.head_stride", [](auto& a) { a.kv.head_stride = 64 * 64 - 1; }},
      {"kv.k is null", [](auto& a) { a.kv.k = nullptr; }},
      {"kv.v is null", [](auto& a) { a.kv.v = nullptr; }},
      {"kv.v[0] is null", [](auto& a) { a.kv.v = no_page.data(); }},
      {"q is null", [](auto& a) { a.q = nullptr; }},
      {"out is null", [](auto& a) { a.out = nullptr; }},
      {"begin", [](auto& a) { a.begin = SIZE_MAX; }},
      {"rows", [](auto& a) { a.rows = SIZE_MAX; }},
      {"scale", [](auto& a) { a.scale = std::numeric_limits<float>::infinity(); }},
      {"skip_below", [](auto& a) { a.skip_below = -1; }},
      {"skip_below", [](auto& a) { a.skip_below = std::numeric_limits<float>::quiet_NaN(); }},
      {"q_row_stride", [](auto& a) { a.q_row_stride = 63; }},
      {"q_head_stride", [](auto& a) { a.q_head_stride = 1; }},
      {"out_row_stride", [](auto& a) { a.out_row_stride = 0; }},
      {"overlap", [](auto& a) { a.out_row_stride = 64; }},
      {"lists.begin[0]",
       [&](auto& a) {
         lists(a, {1, 1, 1, 1, 1}, {0});
       }},
      {"below",
       [&](auto& a) {
         lists(a, {0, 2, 1, 2, 2}, {0, 1});
       }},
      // The list's end is far behind `blocks`: it is refused before it is read.
      {"names 4000000000",
       [&](auto& a) {
         lists(a, {0, 4000000000u, 4000000000u, 0, 0}, {0});
       }},
      {"names block 3, its rows see 3",
       [&](auto& a) {
         lists(a, {0, 1, 1, 1, 1}, {3});
       }},
      {"ascend",
       [&](auto& a) {
         lists(a, {0, 2, 2, 2, 2}, {1, 1});
       }},
      {"ascend",
       [&](auto& a) {
         lists(a, {0, 0, 2, 2, 2}, {1, 0});
       }},
      {"lists.blocks is null",
       [&](auto& a) {
         lists(a, {0, 1, 1, 1, 1}, {0});
         a.lists.blocks = nullptr;
       }},
  };
  // Lists: 2 heads of 2 query blocks, the first of which sees 3 key blocks.
  const BlockAttentionCase c = {.kv_heads = 2, .rows = 140, .begin = 32};
  for (const Row& row : rows) {
    INFO(row.word);
    BlockAttentionProblem p(c);
    BlockAttentionArgs args = p.args();
    row.spoil(args);
    const absl::Status status = BlockSparseAttentionScalar(args);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find(row.word) != std::string::npos);
    CHECK(status.message() == CheckBlockAttention(args).message());
  }
}

TEST_CASE("no rows need no memory") {
  BlockAttentionArgs args;
  args.kv = {.kv_heads = 1, .dim = 64, .head_stride = 64 * 64};
  args.heads = 1;
  CHECK(BlockSparseAttentionScalar(args).ok());
  CHECK(BlockSparseAttention(args).ok());
  CHECK(PagedDecodeAttention(args).ok());
}

TEST_CASE("the answers of the attention cases tell right from wrong") {
  BlockAttentionProblem p({.group = 2, .rows = 3, .begin = 70, .row_major = false});
  CHECK(p.Mismatch(1e-5) != "");  // nothing was written
  REQUIRE(BlockSparseAttentionScalar(p.args()).ok());
  REQUIRE(p.Mismatch(1e-5) == "");
  for (float* at : {p.args().out + 5, p.args().log_sum + 4, p.args().mass + 1,
                    p.args().out + p.args().out_head_stride - 1}) {
    const float was = *at;
    *at += 0.01f;
    CHECK(p.Mismatch(1e-5) != "");
    *at = was;
  }
}
