#include "common/codec/enc_symbols.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "common/codec/bit_io.h"
#include "common/codec/enc_rans.h"
#include "common/codec/rans_common.h"

namespace sparkv {
namespace {

// A symbol that a table lacks costs too much to be chosen.
constexpr uint64_t kAbsent = uint64_t{1} << 32;

void WriteTable(std::span<const uint32_t> frequencies, BitWriter& bits) {
  for (size_t s = 0; s < frequencies.size();) {
    size_t end = s;
    while (end < frequencies.size() && frequencies[end] == 0) ++end;
    if (end - s > 2) {  // 12 bits instead of 4 for each
      bits.Write(kRansZeroRun, 4);
      bits.Write(static_cast<uint32_t>(end - s - 1), kRansZeroRunBits);
      s = end;
      continue;
    }
    const uint32_t f = frequencies[s++];
    const int width = static_cast<int>(std::bit_width(f));
    bits.Write(static_cast<uint32_t>(width), 4);
    if (width > 1) bits.Write(f & ((1u << (width - 1)) - 1), width - 1);
  }
}

struct Tables {
  std::vector<uint8_t> table_of_run;
  std::vector<uint32_t> frequencies;  // [tables][alphabet]
  uint64_t cost = 0;                  // of tables, numbers and symbols in 1/256 bit

  uint32_t count(uint32_t alphabet) const {
    return static_cast<uint32_t>(frequencies.size() / alphabet);
  }
};

// Counts of one run's symbols, the absent ones left out.
struct RunCounts {
  std::vector<std::pair<uint8_t, uint32_t>> present;  // symbol, count
  uint64_t own_cost = 0;                              // coded with its own distribution
};

class Clusterer {
 public:
  Clusterer(uint32_t runs, uint32_t length, uint32_t alphabet, const uint8_t* symbols)
      : alphabet_(alphabet), runs_(runs) {
    constexpr uint32_t kCounters = 4;  // in turn: a symbol often follows its like
    std::vector<uint32_t> counts(size_t{kCounters} * alphabet);
    for (uint32_t r = 0; r < runs; ++r) {
      std::fill(counts.begin(), counts.end(), 0);
      const uint8_t* in = symbols + size_t{r} * length;
      uint32_t i = 0;
      for (; i + kCounters <= length; i += kCounters) {
        for (uint32_t j = 0; j < kCounters; ++j) ++counts[size_t{j} * alphabet + in[i + j]];
      }
      for (; i < length; ++i) ++counts[in[i]];
      for (uint32_t s = 0; s < alphabet; ++s) {
        uint32_t count = 0;
        for (uint32_t j = 0; j < kCounters; ++j) count += counts[size_t{j} * alphabet + s];
        if (count == 0) continue;
        runs_[r].present.emplace_back(static_cast<uint8_t>(s), count);
        const uint32_t f = static_cast<uint32_t>(uint64_t{count} * kRansFrequencySum / length);
        runs_[r].own_cost += count * RansCost(std::max(f, 1u));
      }
    }
  }

  // Of all runs, each with a table of its own that costs nothing.
  uint64_t own_cost() const {
    uint64_t sum = 0;
    for (const RunCounts& run : runs_) sum += run.own_cost;
    return sum;
  }

  bool constant() const {
    return std::all_of(runs_.begin(), runs_.end(), [&](const RunCounts& r) {
      return r.present.size() == 1 && r.present[0].first == runs_[0].present[0].first;
    });
  }

  // At most `tables` tables: groups of runs of like entropy first, then a few rounds of moving each
  // run to the table that codes it best.
  Tables Cluster(uint32_t tables) const {
    std::vector<uint32_t> order(runs_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return runs_[a].own_cost < runs_[b].own_cost; });
    Tables t;
    t.table_of_run.resize(runs_.size());
    for (size_t i = 0; i < order.size(); ++i) {
      t.table_of_run[order[i]] = static_cast<uint8_t>(i * tables / order.size());
    }
    BuildTables(tables, &t);
    for (int round = 0; tables > 1 && round < 3; ++round) {
      std::vector<uint64_t> costs = SymbolCosts(t);
      const uint32_t n = t.count(alphabet_);
      for (size_t r = 0; r < runs_.size(); ++r) {
        uint64_t best = ~uint64_t{0};
        for (uint32_t c = 0; c < n; ++c) {
          const uint64_t cost = RunCost(runs_[r], costs.data() + size_t{c} * alphabet_);
          if (cost >= best) continue;
          best = cost;
          t.table_of_run[r] = static_cast<uint8_t>(c);
        }
      }
      BuildTables(n, &t);
    }
    const std::vector<uint64_t> costs = SymbolCosts(t);
    t.cost = 256 * runs_.size() * RansTableIdBits(t.count(alphabet_));
    for (size_t base = 0; base < t.frequencies.size(); base += alphabet_) {
      BitWriter bits;
      WriteTable({t.frequencies.data() + base, alphabet_}, bits);
      t.cost += 256 * 8 * bits.Take().size();
    }
    for (size_t r = 0; r < runs_.size(); ++r) {
      t.cost += RunCost(runs_[r], costs.data() + size_t{t.table_of_run[r]} * alphabet_);
    }
    return t;
  }

 private:
  // Frequencies of each group of runs; groups without a run are dropped and the numbers closed up.
  void BuildTables(uint32_t groups, Tables* t) const {
    std::vector<uint64_t> counts(size_t{groups} * alphabet_);
    std::vector<uint8_t> used(groups);
    for (size_t r = 0; r < runs_.size(); ++r) {
      used[t->table_of_run[r]] = 1;
      for (const auto& [s, n] : runs_[r].present) {
        counts[size_t{t->table_of_run[r]} * alphabet_ + s] += n;
      }
    }
    std::vector<uint8_t> renumber(groups);
    t->frequencies.clear();
    for (uint32_t g = 0; g < groups; ++g) {
      if (used[g] == 0) continue;
      renumber[g] = static_cast<uint8_t>(t->count(alphabet_));
      t->frequencies.resize(t->frequencies.size() + alphabet_);
      NormalizeFrequencies({counts.data() + size_t{g} * alphabet_, alphabet_},
                           std::span(t->frequencies).last(alphabet_));
    }
    for (uint8_t& id : t->table_of_run) id = renumber[id];
  }

  std::vector<uint64_t> SymbolCosts(const Tables& t) const {
    std::vector<uint64_t> costs(t.frequencies.size());
    for (size_t i = 0; i < costs.size(); ++i) {
      const uint32_t f = t.frequencies[i];
      costs[i] = f == 0 ? kAbsent : RansCost(f);
    }
    return costs;
  }

  static uint64_t RunCost(const RunCounts& run, const uint64_t* costs) {
    uint64_t sum = 0;
    for (const auto& [s, n] : run.present) sum += n * costs[s];
    return sum;
  }

  const uint32_t alphabet_;
  std::vector<RunCounts> runs_;
};

std::string PackRaw(uint64_t n, int bits, const uint8_t* symbols) {
  std::string out((n * bits + 7) / 8, '\0');
  char* to = out.data();
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8, to += bits) {  // 8 symbols fill `bits` bytes
    uint64_t word = 0;
    for (int j = 0; j < 8; ++j) word |= uint64_t{symbols[i + j]} << (j * bits);
    std::memcpy(to, &word, static_cast<size_t>(bits));
  }
  uint64_t word = 0;
  for (int j = 0; i + j < n; ++j) word |= uint64_t{symbols[i + j]} << (j * bits);
  std::memcpy(to, &word, out.size() - (to - out.data()));
  return out;
}

std::string PackRans(const Tables& t, uint32_t runs, uint32_t length, uint32_t alphabet,
                     const uint8_t* symbols) {
  ByteWriter out;
  out.Write<uint8_t>(static_cast<uint8_t>(t.count(alphabet) - 1));
  BitWriter bits;
  for (uint8_t id : t.table_of_run) bits.Write(id, RansTableIdBits(t.count(alphabet)));
  for (size_t base = 0; base < t.frequencies.size(); base += alphabet) {
    WriteTable({t.frequencies.data() + base, alphabet}, bits);
  }
  out.WriteBytes(bits.Take());
  const RansOutput coded =
      RansEncode({symbols, size_t{runs} * length}, length, t.table_of_run, t.frequencies, alphabet);
  out.Write<uint32_t>(static_cast<uint32_t>(coded.words.size()));
  for (uint32_t state : coded.states) out.Write(state);
  out.WriteBytes({reinterpret_cast<const uint8_t*>(coded.words.data()), 2 * coded.words.size()});
  return out.Take();
}

}  // namespace

void EncodeSymbols(uint32_t runs, uint32_t length, int bits, const uint8_t* symbols,
                   ByteWriter& out) {
  const uint64_t n = uint64_t{runs} * length;
  const auto put = [&out](SymbolMode mode, std::string_view bytes) {
    out.Write<uint8_t>(static_cast<uint8_t>(mode));
    out.WriteBytes(bytes);
  };
  if (n == 0) return put(SymbolMode::kRaw, "");
  const uint32_t alphabet = 1u << bits;
  const Clusterer clusterer(runs, length, alphabet, symbols);
  if (clusterer.constant()) {
    const char symbol = static_cast<char>(symbols[0]);
    return put(SymbolMode::kConstant, {&symbol, 1});
  }
  const uint64_t raw_bytes = (n * bits + 7) / 8;
  const uint64_t limit = raw_bytes - raw_bytes / 32;
  // What no tables would make worth it.
  if (clusterer.own_cost() / (8 * 256) >= limit)
    return put(SymbolMode::kRaw, PackRaw(n, bits, symbols));
  Tables best = clusterer.Cluster(1);
  // Trying many tables of a large alphabet takes longer than the fraction of a percent it gains is
  // worth.
  const uint32_t most = std::min(runs, bits > 4 ? 16 : kMaxRansTables);
  for (uint32_t tables = 4; tables <= most; tables *= 4) {
    Tables next = clusterer.Cluster(tables);
    const bool much_better = next.cost + next.cost / 256 < best.cost;
    if (next.cost < best.cost) best = std::move(next);
    if (!much_better) break;
  }
  if (best.cost / (8 * 256) + 5 + 4 * RansLanes(length) < limit) {
    const std::string coded = PackRans(best, runs, length, alphabet, symbols);
    if (coded.size() < limit) return put(SymbolMode::kRans, coded);
  }
  put(SymbolMode::kRaw, PackRaw(n, bits, symbols));
}

}  // namespace sparkv
