#include "common/calibrate/table_training.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "common/codec/enc_rans.h"
#include "common/codec/profile.h"
#include "common/codec/residual_common.h"

namespace sparkv {
namespace {

constexpr uint32_t kUnit = 1u << 12;  // of the counts below, so that parts of one can be told
constexpr double kEscapeBits = 48;
constexpr int kRounds = 8;

// Frequencies of a group of runs: its counts, with a little of what lies beside each symbol, so
// that a text of another kind finds a code for what was rare here.
std::vector<uint32_t> BuildTable(std::span<const double> counts) {
  std::vector<double> smooth(kProfileSymbols);
  double total = 0;
  for (uint32_t s = 0; s < kEscapeSymbol; ++s) {
    const int32_t v = SymbolToValue(s);
    for (const int32_t d : {-1, 0, 1}) {
      const int32_t w = v + d;
      if (std::abs(w) > kMaxSymbolMagnitude) continue;
      smooth[ValueToSymbol(w)] += counts[s] * (d == 0 ? 0.998 : 0.001);
    }
    total += counts[s];
  }
  std::vector<uint64_t> scaled(kProfileSymbols);
  for (uint32_t s = 0; s < kEscapeSymbol; ++s) {
    const double share = total > 0 ? smooth[s] / total : 0;
    // Below half a slot the escape is cheaper.
    if (share * kRansFrequencySum >= 0.5)
      scaled[s] = static_cast<uint64_t>(share * kUnit * 4096) + 1;
  }
  if (std::all_of(scaled.begin(), scaled.end(), [](uint64_t c) { return c == 0; }))
    scaled[0] = kUnit;
  scaled[kEscapeSymbol] = 1;  // becomes one slot
  std::vector<uint32_t> frequencies(kProfileSymbols);
  NormalizeFrequencies(scaled, frequencies);
  return frequencies;
}

}  // namespace

double RunBits(std::span<const uint32_t> counts, std::span<const uint32_t> frequencies) {
  double bits = 0;
  for (uint32_t s = 0; s < kProfileSymbols; ++s) {
    if (counts[s] == 0) continue;
    const bool escaped = s == kEscapeSymbol || frequencies[s] == 0;
    const uint32_t f = frequencies[escaped ? kEscapeSymbol : s];
    bits += counts[s] * (kRansFrequencyBits - std::log2(f) + (escaped ? kEscapeBits : 0));
  }
  return bits;
}

TrainedTables TrainTables(std::span<const uint32_t> counts) {
  const size_t runs = counts.size() / kProfileSymbols;
  const auto run = [&](size_t r) { return counts.subspan(r * kProfileSymbols, kProfileSymbols); };
  std::vector<double> spread(runs);
  for (size_t r = 0; r < runs; ++r) {
    double sum = 0, n = 0;
    for (uint32_t s = 0; s < kEscapeSymbol; ++s) {
      sum += static_cast<double>(run(r)[s]) * std::abs(SymbolToValue(s));
      n += run(r)[s];
    }
    spread[r] = n > 0 ? sum / n : 0;
  }
  std::vector<size_t> order(runs);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return spread[a] < spread[b]; });
  TrainedTables out;
  out.table_of_run.resize(runs);
  for (size_t i = 0; i < runs; ++i) {
    out.table_of_run[order[i]] =
        static_cast<uint8_t>(i * kProfileTables / std::max<size_t>(runs, 1));
  }
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> sums(size_t{kProfileTables} * kProfileSymbols);
    for (size_t r = 0; r < runs; ++r) {
      double* sum = &sums[size_t{out.table_of_run[r]} * kProfileSymbols];
      for (uint32_t s = 0; s < kProfileSymbols; ++s) sum[s] += run(r)[s];
    }
    out.frequencies.clear();
    for (uint32_t t = 0; t < kProfileTables; ++t) {
      const auto table = BuildTable({sums.data() + size_t{t} * kProfileSymbols, kProfileSymbols});
      out.frequencies.insert(out.frequencies.end(), table.begin(), table.end());
    }
    for (size_t r = 0; r < runs; ++r) {
      double best = INFINITY;
      for (uint32_t t = 0; t < kProfileTables; ++t) {
        const double bits = RunBits(
            run(r), {out.frequencies.data() + size_t{t} * kProfileSymbols, kProfileSymbols});
        if (bits < best) {
          best = bits;
          out.table_of_run[r] = static_cast<uint8_t>(t);
        }
      }
    }
  }
  return out;
}

}  // namespace sparkv
