#include "common/calibrate/table_training.h"

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "common/codec/profile.h"
#include "common/codec/residual_common.h"
#include "tests/catch.h"

namespace sparkv {
namespace {

// Runs of counts as two-sided geometric distributions of many widths give them; `own` is the
// entropy of each in bits for all its symbols.
std::vector<uint32_t> GeometricCounts(uint32_t runs, uint32_t symbols, std::vector<double>* own) {
  std::mt19937 rng(1);
  std::vector<uint32_t> counts(size_t{runs} * kProfileSymbols);
  for (uint32_t r = 0; r < runs; ++r) {
    uint32_t* run = &counts[size_t{r} * kProfileSymbols];
    const double stay = 0.05 + 0.9 * r / runs;
    for (uint32_t i = 0; i < symbols; ++i) {
      int32_t v = 0;
      while (v < kMaxSymbolMagnitude && rng() % 65536 < stay * 65536) ++v;
      ++run[ValueToSymbol(rng() % 2 == 0 ? v : -v)];
    }
    double bits = 0;
    for (uint32_t s = 0; s < kProfileSymbols; ++s) {
      if (run[s] > 0) bits += run[s] * std::log2(static_cast<double>(symbols) / run[s]);
    }
    own->push_back(bits);
  }
  return counts;
}

}  // namespace

TEST_CASE("trained tables sum to 4096, have an escape and are the same again") {
  std::vector<double> own;
  for (const uint32_t runs : {0u, 1u, 3u, 64u, 500u}) {
    CAPTURE(runs);
    const std::vector<uint32_t> counts = GeometricCounts(runs, 200, &own);
    const TrainedTables tables = TrainTables(counts);
    REQUIRE(tables.frequencies.size() == size_t{kProfileTables} * kProfileSymbols);
    REQUIRE(tables.table_of_run.size() == runs);
    for (uint32_t t = 0; t < kProfileTables; ++t) {
      const auto* f = &tables.frequencies[size_t{t} * kProfileSymbols];
      CHECK(std::accumulate(f, f + kProfileSymbols, 0u) == 4096);
      CHECK(f[kEscapeSymbol] > 0);
    }
    for (const uint8_t t : tables.table_of_run) CHECK(t < kProfileTables);
    const TrainedTables again = TrainTables(counts);
    CHECK(again.frequencies == tables.frequencies);
    CHECK(again.table_of_run == tables.table_of_run);
  }
}

TEST_CASE("trained tables code the runs that they were trained on close to their entropy") {
  std::vector<double> own;
  const std::vector<uint32_t> counts = GeometricCounts(600, 4000, &own);
  const TrainedTables tables = TrainTables(counts);
  double bits = 0, entropy = 0;
  for (uint32_t r = 0; r < 600; ++r) {
    const std::span run(&counts[size_t{r} * kProfileSymbols], kProfileSymbols);
    const auto with = [&](uint32_t t) {
      return RunBits(run, {&tables.frequencies[size_t{t} * kProfileSymbols], kProfileSymbols});
    };
    bits += with(tables.table_of_run[r]);
    entropy += own[r];
    for (uint32_t t = 0; t < kProfileTables; ++t) CHECK(with(tables.table_of_run[r]) <= with(t));
  }
  CAPTURE(bits, entropy);
  CHECK(bits >= entropy);
  CHECK(bits <= 1.03 * entropy);
}

TEST_CASE("symbols that no calibration text had still have a code") {
  std::vector<uint32_t> counts(2 * kProfileSymbols);
  counts[0] = 1000;
  counts[kProfileSymbols + 255] = 1000;  // escapes alone
  const TrainedTables tables = TrainTables(counts);
  std::vector<uint32_t> other(kProfileSymbols);
  other[200] = 1;
  for (uint32_t t = 0; t < kProfileTables; ++t) {
    const double bits =
        RunBits(other, {&tables.frequencies[size_t{t} * kProfileSymbols], kProfileSymbols});
    CHECK(std::isfinite(bits));
    CHECK(bits <= 12 + 48);
  }
}

}  // namespace sparkv
