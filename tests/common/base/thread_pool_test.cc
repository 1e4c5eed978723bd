#include "common/base/thread_pool.h"

#include <atomic>
#include <numeric>
#include <vector>

#include "tests/catch.h"

namespace sparkv {
namespace {

TEST_CASE("ParallelFor visits every index once for any size and grain") {
  ThreadPool pool(3);
  for (const size_t n : {0, 1, 2, 3, 4, 5, 7, 64, 1001}) {
    for (const size_t grain : {0, 1, 3, 1000, 5000}) {
      std::vector<std::atomic<int>> hits(n);
      ParallelFor(&pool, n, grain, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) hits[i].fetch_add(1);
      });
      for (size_t i = 0; i < n; ++i) REQUIRE(hits[i].load() == 1);
    }
  }
}

TEST_CASE("ParallelFor without a pool runs on the caller") {
  std::vector<size_t> seen;
  ParallelFor(nullptr, 10, 1, [&](size_t begin, size_t end) { seen.push_back(end - begin); });
  CHECK(seen == std::vector<size_t>{10});
}

TEST_CASE("the destructor runs what was posted") {
  std::atomic<int> ran{0};
  {
    ThreadPool pool(2);
    for (int i = 0; i < 100; ++i) pool.Post([&ran] { ran.fetch_add(1); });
  }
  CHECK(ran.load() == 100);
}

}  // namespace
}  // namespace sparkv
