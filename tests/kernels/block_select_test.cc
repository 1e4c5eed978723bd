#include "kernels/block_select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/half.h"
#include "tests/catch.h"

using namespace sparkv::kernels;

namespace {

// One KV head, `group` query heads; rows of a block lie around the block's own direction, so that
// pooling tells something. Values are f16 numbers.
struct Problem {
  size_t begin, rows, group, dim;
  std::vector<float> q;
  std::vector<std::vector<uint16_t>> pages;
  std::vector<const uint16_t*> pointers;
  BlockAttentionArgs args;

  Problem(size_t begin, size_t rows, size_t group, size_t dim, float noise)
      : begin(begin), rows(rows), group(group), dim(dim), q(rows * group * dim) {
    std::mt19937 rng(static_cast<uint32_t>(begin * 31 + rows + dim));
    std::normal_distribution<float> normal;
    std::vector<float> centre(dim);
    const auto turn = [&](float size) {
      for (float& x : centre) x = normal(rng) * size;
    };
    const size_t keys = begin + rows;
    for (size_t p = 0; p * kKeyBlock < keys; ++p) {
      turn(1.5f);
      std::vector<uint16_t>& page = pages.emplace_back(kKeyBlock * dim, uint16_t{0x7E00});
      for (size_t i = 0; i < std::min(kKeyBlock, keys - p * kKeyBlock) * dim; ++i)
        page[i] = FloatToHalf(centre[i % dim] + noise * normal(rng));
    }
    for (const auto& page : pages) pointers.push_back(page.data());
    for (size_t h = 0; h < group; ++h) {
      for (size_t r = 0; r < rows; ++r) {
        if (r % kQueryBlock == 0) turn(1.5f);
        for (size_t i = 0; i < dim; ++i)
          q[(r * group + h) * dim + i] = centre[i] + noise * normal(rng);
      }
    }
    args.kv = {.k = pointers.data(),
               .v = pointers.data(),
               .pages = pages.size(),
               .tokens = keys,
               .kv_heads = 1,
               .dim = dim,
               .head_stride = kKeyBlock * dim};
    args.q = q.data();
    args.q_head_stride = dim;
    args.q_row_stride = group * dim;
    args.heads = group;
    args.rows = rows;
    args.begin = begin;
    args.scale = 1.0f / std::sqrt(static_cast<float>(dim));
  }

  std::vector<uint32_t> List(const SelectedBlocks& s, size_t head, size_t block) const {
    const size_t list = head * args.query_blocks() + block;
    return {s.blocks.begin() + s.begin[list], s.blocks.begin() + s.begin[list + 1]};
  }
  size_t Sees(size_t block) const {
    return (begin + std::min(rows, (block + 1) * kQueryBlock) - 1) / kKeyBlock + 1;
  }
};

std::vector<uint32_t> All(size_t blocks) {
  std::vector<uint32_t> all(blocks);
  for (size_t b = 0; b < blocks; ++b) all[b] = static_cast<uint32_t>(b);
  return all;
}

}  // namespace

TEST_CASE("pooling gives the mean and the mean cosine of all pairs") {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  for (const size_t dim : {64, 80, 96, 128, 256, 20}) {
    for (const size_t count : {1, 2, 64, 128}) {
      const size_t stride = dim + 3;
      std::vector<float> rows(count * stride);
      for (float& x : rows) x = normal(rng) + 0.4f;
      if (count == 64) std::fill_n(&rows[5 * stride], dim, 0.0f);  // a row without a direction
      double cosine = 0;
      for (size_t a = 0; a < count; ++a) {
        for (size_t b = 0; b < count; ++b) {
          double ab = 0, aa = 0, bb = 0;
          for (size_t i = 0; i < dim; ++i) {
            const double x = rows[a * stride + i], y = rows[b * stride + i];
            ab += x * y;
            aa += x * x;
            bb += y * y;
          }
          if (ab != 0) cosine += ab / std::sqrt(aa * bb);
        }
      }
      cosine /= static_cast<double>(count * count);
      for (const auto pool : {PoolRows, PoolRowsScalar}) {
        std::vector<float> mean(dim);
        CHECK(pool(rows.data(), stride, count, dim, mean.data()) == Approx(cosine).epsilon(1e-4));
        for (size_t i = 0; i < dim; ++i) {
          double sum = 0;
          for (size_t r = 0; r < count; ++r) sum += rows[r * stride + i];
          REQUIRE(std::fabs(mean[i] - sum / static_cast<double>(count)) < 1e-5);
        }
      }
    }
  }
}

TEST_CASE("the selection visits what the scalar twin does") {
  size_t lists = 0, different = 0, visited = 0, seen = 0;
  for (const size_t dim : {64, 80, 128}) {
    for (const size_t begin : {0, 63, 500, 1900}) {
      for (const size_t rows : {1, 128, 300}) {
        const Problem p(begin, rows, 3, dim, 0.7f);
        SelectedBlocks fast, scalar;
        REQUIRE(SelectBlocks(p.args, {.tau = 0.9f, .theta = 0.5f}, &fast).ok());
        REQUIRE(SelectBlocksScalar(p.args, {.tau = 0.9f, .theta = 0.5f}, &scalar).ok());
        BlockAttentionArgs args = p.args;
        args.lists = fast.lists();
        std::vector<float> out(p.q.size());
        args.out = out.data();
        args.out_head_stride = args.q_head_stride;
        args.out_row_stride = args.q_row_stride;
        REQUIRE(CheckBlockAttention(args).ok());
        for (size_t h = 0; h < 3; ++h) {
          for (size_t b = 0; b < p.args.query_blocks(); ++b) {
            const std::vector<uint32_t> list = p.List(fast, h, b);
            ++lists;
            different += list != p.List(scalar, h, b);
            visited += list.size();
            seen += p.Sees(b);
            CHECK(list.front() == 0);
            for (size_t own = (begin + b * kQueryBlock) / kKeyBlock; own < p.Sees(b); ++own)
              CHECK(std::find(list.begin(), list.end(), own) != list.end());
          }
        }
      }
    }
  }
  // The last block that tau needs may be a matter of rounding.
  CHECK(different * 50 <= lists);
  CHECK(visited < 0.6 * static_cast<double>(seen));
}

TEST_CASE("a larger tau visits a larger set, and 1 or a high theta all of it") {
  const Problem p(2000, 256, 2, 64, 0.7f);
  std::vector<uint32_t> before;
  for (const float tau : {0.0f, 0.5f, 0.9f, 0.99f, 1.0f}) {
    SelectedBlocks s;
    REQUIRE(SelectBlocks(p.args, {.tau = tau, .theta = -1}, &s).ok());
    const std::vector<uint32_t> list = p.List(s, 1, 0);
    CHECK(std::includes(list.begin(), list.end(), before.begin(), before.end()));
    if (tau == 0) CHECK(list == std::vector<uint32_t>{0, 31, 32, 33});
    before = list;
  }
  CHECK(before.size() > 10);
  SelectedBlocks s;
  REQUIRE(SelectBlocks(p.args, {.tau = 0, .theta = 1.1f}, &s).ok());
  CHECK(p.List(s, 1, 1) == All(p.Sees(1)));
}

TEST_CASE("the heaviest block is found wherever it is") {
  for (const size_t heavy : {1, 9, 28}) {
    Problem p(2000, 128, 1, 64, 0.1f);
    for (size_t i = 0; i < kKeyBlock * 64; ++i)
      p.pages[heavy][i] = FloatToHalf(2 * p.q[i % 64]);  // along the queries
    SelectedBlocks s;
    REQUIRE(SelectBlocks(p.args, {.tau = 0.9f, .theta = 0.5f}, &s).ok());
    const std::vector<uint32_t> want = {0, static_cast<uint32_t>(heavy), 31, 32, 33};
    CHECK(p.List(s, 0, 0) == want);
  }
}

TEST_CASE("key blocks that are not alike, and what is not finite, are always visited") {
  Problem p(2000, 256, 1, 64, 0.1f);
  const SelectOptions options = {.tau = 0.5f, .theta = 0.5f};
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (uint16_t& x : p.pages[7]) x = FloatToHalf(normal(rng));
  p.pages[12][3] = 0x7E00;   // NaN
  p.pages[15][70] = 0x7C00;  // infinity
  for (const bool scalar : {false, true}) {
    SelectedBlocks s;
    REQUIRE((scalar ? SelectBlocksScalar(p.args, options, &s) : SelectBlocks(p.args, options, &s))
                .ok());
    const std::vector<uint32_t> list = p.List(s, 0, 0);
    CHECK(list.size() < 12);
    for (const uint32_t b : {7, 12, 15}) CHECK(std::count(list.begin(), list.end(), b) == 1);
  }
  p.q[5] = std::numeric_limits<float>::quiet_NaN();
  SelectedBlocks s;
  REQUIRE(SelectBlocks(p.args, options, &s).ok());
  CHECK(p.List(s, 0, 0) == All(p.Sees(0)));  // its query block visits everything
  CHECK(p.List(s, 0, 1).size() < 12);        // the other one does not
}

TEST_CASE("the selection refuses options out of range and broken problems") {
  const Problem p(100, 10, 1, 64, 0.1f);
  SelectedBlocks s;
  for (const auto& [options, word] :
       {std::pair{SelectOptions{.tau = 1.5f}, "tau is 1.5"},
        std::pair{SelectOptions{.tau = NAN}, "tau"}, std::pair{SelectOptions{.theta = -2}, "theta"},
        std::pair{SelectOptions{.theta = NAN}, "theta"}}) {
    const absl::Status status = SelectBlocks(p.args, options, &s);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find(word) != std::string::npos);
    CHECK(SelectBlocksScalar(p.args, options, &s) == status);
  }
  BlockAttentionArgs args = p.args;
  args.kv.tokens = 5;
  CHECK(SelectBlocks(args, {}, &s).code() == absl::StatusCode::kInvalidArgument);
  args = p.args;
  args.rows = 0;
  REQUIRE(SelectBlocks(args, {}, &s).ok());
  CHECK(s.blocks.empty());
}

TEST_CASE("active blocks are as many as hold the share of the mass") {
  // Queries that score `high` on `heavy` whole key blocks and 0 on the others.
  const size_t dim = 64, begin = 64 * 30, rows = 128, keys = begin + rows;
  std::vector<float> q(rows * dim), k(keys * dim), panels(KeyPanelFloats(keys, dim) + 16);
  for (size_t r = 0; r < rows; ++r) q[r * dim] = 1;
  float* aligned = panels.data();
  while (reinterpret_cast<uintptr_t>(aligned) % 64 != 0) ++aligned;
  BlockAttentionArgs args;
  args.kv.kv_heads = 1;
  args.kv.dim = dim;
  args.q = q.data();
  args.q_row_stride = dim;
  args.heads = 1;
  args.rows = rows;
  args.begin = begin;
  std::vector<float> scratch(ActiveBlocksScratchFloats(args));
  for (const size_t heavy : {1, 5, 20}) {
    std::fill(k.begin(), k.end(), 0.0f);
    for (size_t key = 0; key < heavy * kKeyBlock; ++key) k[(key + 128) * dim] = 12;
    PackKeys(k.data(), keys, dim, 0, aligned);
    const KvPanels view = {.k = aligned, .capacity = keys};
    CHECK(ActiveBlocks(args, view, 0, 0, 0.98f, scratch.data()) == heavy);
    CHECK(ActiveBlocks(args, view, 0, 0, 0.47f, scratch.data()) == (heavy * 47 + 99) / 100);
  }
  // Even scores: 98 % of the keys seen, on average 1,984 of the 2,048.
  std::fill(k.begin(), k.end(), 0.0f);
  PackKeys(k.data(), keys, dim, 0, aligned);
  const size_t even =
      ActiveBlocks(args, {.k = aligned, .capacity = keys}, 0, 0, 0.98f, scratch.data());
  CHECK(even >= 30);
  CHECK(even <= 32);
  args.rows = 2;  // fewer rows than are sampled
  CHECK(ActiveBlocks(args, {.k = aligned, .capacity = keys}, 0, 0, 0.98f, scratch.data()) == 30);
}
