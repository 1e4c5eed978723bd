#include "edge/load/link_choice.h"

#include <algorithm>
#include <limits>

namespace sparkv {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Compute that has less left than the link needs for so many blocks waits for the link soon.
constexpr double kBacklogBlocks = 2;

struct Item {
  BlockRef block;
  double deadline_s;
  double bytes;
};

// The block of the column with the least worth; within it the top layer, or, where blocks are
// finished from the bottom up and columns are whole, the lowest one.
class Flex {
 public:
  Flex(const std::vector<double>& worth, bool bottom_up)
      : bottom_up_(bottom_up), worth_(worth) {}
  bool Before(const BlockRef& a, const BlockRef& b) const {
    if (a.column != b.column) {
      const double x = worth_[a.column], y = worth_[b.column];
      return x < y || (x == y && a.column > b.column);
    }
    return bottom_up_ ? a.layer < b.layer : a.layer > b.layer;
  }

 private:
  const bool bottom_up_;
  const std::vector<double>& worth_;
};

// Seconds of compute planned before each ATTN(t, l), columns in order; and in all.
class ComputeSchedule {
 public:
  explicit ComputeSchedule(const LoadView& view)
      : layers_(view.problem.layers), reads_(layers_, kNever), total_(view.running_left_s) {
    for (uint32_t t = 0; t < view.problem.columns(); ++t) {
      const uint32_t from = view.HiddenDepth(t);
      uint32_t end = from;  // behind the last gap
      for (uint32_t l = from; l < view.state.depth(t); ++l) {
        if (view.state.block(t, l) == BlockState::kMissing) end = l + 1;
      }
      starts_.emplace_back(end > 0 ? end - 1 : 0, kNever);
      for (uint32_t l = from; l < end; ++l) {
        if (view.state.block(t, l) == BlockState::kMissing) total_ += view.problem.ProjectSeconds(t);
        if (l + 1 == end) break;
        starts_.back()[l] = total_;
        total_ += view.problem.AttendSeconds(t, l);
      }
    }
  }
  double total() const { return total_; }
  // To be called for columns from the last to the first: the earliest ATTN(t', l), t' > the columns
  // not yet passed.
  double ReadOf(uint32_t l) const { return reads_[l]; }
  void Pass(uint32_t t) {
    for (uint32_t l = 0; l < starts_[t].size(); ++l) reads_[l] = std::min(reads_[l], starts_[t][l]);
  }

 private:
  const uint32_t layers_;
  std::vector<std::vector<double>> starts_;  // [columns][layers with ATTN to come]
  std::vector<double> reads_;                // [layers]
  double total_;
};

}  // namespace

std::vector<double> ColumnWorth(const LoadProblem& problem) {
  std::vector<double> worth;
  for (uint32_t t = 0; t < problem.columns(); ++t) {
    double bytes = 0;
    for (uint32_t l = 0; l < problem.layers; ++l) bytes += static_cast<double>(problem.bytes(t, l));
    worth.push_back(bytes / std::max(1e-12, PrefixSeconds(problem, t, problem.layers)));
  }
  return worth;
}

std::optional<BlockRef> ChooseBlock(const LoadView& view, const std::vector<double>& worth, double target_s) {
  const LoadProblem& p = view.problem;
  const LoadState& state = view.state;
  const Flex flex(worth, p.whole_columns);

  // When QUERY(l) must begin, and how much FINAL each layer adds.
  std::vector<double> final_seconds(p.layers, 0);
  if (state.rules().needs_final) {
    for (uint32_t t = 0; t < p.columns(); ++t) {
      for (uint32_t l = p.least_depth(); l < p.layers; ++l) {
        const BlockState block = state.block(t, l);
        if ((block == BlockState::kMissing && l >= state.depth(t)) ||
            block == BlockState::kDecoding || block == BlockState::kSymbols)
          final_seconds[l] += p.FinalSeconds(t);
      }
    }
  }
  std::vector<double> query_s(p.layers);
  double need = 0;
  for (uint32_t l = p.layers; l-- > 0;) {
    if (l >= state.query_layer()) need += p.QuerySeconds();
    need += final_seconds[l];
    query_s[l] = target_s - need;
  }

  ComputeSchedule compute(view);
  std::vector<Item> items;
  std::optional<BlockRef> spare;  // below the depths
  for (uint32_t t = p.columns(); t-- > 0;) {
    for (uint32_t l = 0; l < p.layers; ++l) {
      if (!view.Orderable(t, l)) continue;
      const BlockRef block{t, l};
      if (l >= state.depth(t)) {
        const double decode = p.DecodeSeconds(static_cast<double>(p.bytes(t, l)));
        items.push_back({block, std::min(query_s[l], view.now_s + compute.ReadOf(l)) - decode,
                         static_cast<double>(p.bytes(t, l))});
      } else if (!spare.has_value() || flex.Before(block, *spare)) {
        spare = block;
      }
    }
    compute.Pass(t);
  }
  if (items.empty()) return spare;
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    if (a.deadline_s != b.deadline_s) return a.deadline_s < b.deadline_s;
    return a.block.layer != b.block.layer ? a.block.layer < b.block.layer
                                          : a.block.column < b.block.column;
  });
  const double rate = p.link_bytes_per_s;
  if (rate <= 0) return items.front().block;
  const auto* best = &*std::min_element(
      items.begin(), items.end(),
      [&](const Item& a, const Item& b) { return flex.Before(a.block, b.block); });
  if (compute.total() <= kBacklogBlocks * best->bytes / rate) return items.front().block;
  // EDF behind the flex block.
  double ready_s = view.now_s + (view.under_way_bytes + best->bytes) / rate;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].block == best->block) continue;
    if (best->deadline_s <= items[i].deadline_s) break;  // nothing before it would be late
    ready_s += items[i].bytes / rate;
    if (ready_s <= items[i].deadline_s) continue;
    return std::min_element(
               items.begin(), items.begin() + static_cast<ptrdiff_t>(i) + 1,
               [&](const Item& a, const Item& b) { return flex.Before(a.block, b.block); })
        ->block;
  }
  return best->block;
}

}  // namespace sparkv
