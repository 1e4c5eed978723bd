#include "common/llm/work_team.h"

#include <atomic>
#include <vector>

#include "tests/catch.h"

using namespace sparkv;

TEST_CASE("a barrier shows every member what the others wrote before it") {
  for (const int threads : {1, 2, 3, 7}) {
    WorkTeam team(threads);
    std::vector<int> slots(static_cast<size_t>(threads));
    std::atomic<int> wrong{0};
    for (int run = 0; run < 50; ++run) {
      team.Run([&](int member) {
        for (int phase = 1; phase <= 20; ++phase) {
          slots[static_cast<size_t>(member)] = run * 100 + phase;
          team.Barrier();
          for (const int slot : slots) wrong += slot != run * 100 + phase;
          team.Barrier();
        }
      });
    }
    REQUIRE(wrong == 0);
  }
}

TEST_CASE("ParallelFor covers every index once") {
  WorkTeam team(3);
  for (const size_t n : {0u, 1u, 2u, 3u, 4u, 100u}) {
    for (const size_t grain : {0u, 1u, 8u, 1000u}) {
      std::vector<std::atomic<int>> seen(n);
      team.ParallelFor(n, grain, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) ++seen[i];
      });
      for (const auto& s : seen) REQUIRE(s == 1);
    }
  }
}

TEST_CASE("shares are whole units, cover everything and do not overlap") {
  for (const size_t n : {0u, 1u, 8u, 9u, 100u, 49152u}) {
    for (const int members : {1, 2, 3, 5, 64}) {
      size_t next = 0;
      for (int m = 0; m < members; ++m) {
        const Share s = ShareOf(n, m, members, 8);
        REQUIRE(s.begin == next);
        REQUIRE((s.end % 8 == 0 || s.end == n));
        next = s.end;
      }
      REQUIRE(next == n);
    }
  }
}
