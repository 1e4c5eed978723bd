#include "edge/load/compute_choice.h"

#include <algorithm>
#include <vector>

namespace sparkv {
namespace {

constexpr double kMargin = 1.5;    // of costs
constexpr double kUnderWaySeconds = 0.25;
constexpr double kForever = 1e9;  // the wait for a link that brings nothing

}  // namespace

std::optional<BlockRef> ChooseSteal(const LoadView& view) {
  const LoadProblem& p = view.problem;
  const LoadState& state = view.state;
  if (!view.streaming) return std::nullopt;
  const double rate = p.link_bytes_per_s;
  const auto wait = [rate](double bytes) { return rate > 0 ? bytes / rate : kForever; };
  // Missing bytes by layer, lowest first: the order in which the stream is needed.
  std::vector<double> ahead(p.layers, 0);
  double sum = 0;
  for (uint32_t l = 0; l < p.layers; ++l) {
    for (uint32_t t = 0; t < p.columns(); ++t) {
      if (state.block(t, l) == BlockState::kMissing) sum += static_cast<double>(p.bytes(t, l));
    }
    ahead[l] = sum;
  }
  double best_gain = 0;
  std::optional<BlockRef> best;
  for (uint32_t t = 0; t < p.columns(); ++t) {
    const uint32_t hidden = state.hidden_depth(t);
    const std::optional<uint32_t> gap = state.Gap(t, p.layers);
    if (!gap.has_value()) continue;
    double cost = 0;
    bool ready = true;  // the ATTN below must not wait for the stream either
    for (uint32_t l = hidden; ready && l < *gap; ++l) {
      ready = state.AttendReady(t, l);
      cost += p.AttendSeconds(t, l);
    }
    if (!ready) continue;
    cost += p.ProjectSeconds(t);
    double saved = ahead[*gap];
    if (p.whole_columns) {
      // All that misses of the column is taken with it; ATTN of the layers above must not wait.
      saved = sum;
      for (uint32_t earlier = 0; ready && earlier < t; ++earlier)
        ready = state.column_complete(earlier);
      if (!ready) continue;
      for (uint32_t l = *gap + 1; l < p.layers; ++l)
        cost += p.AttendSeconds(t, l - 1) + p.ProjectSeconds(t);
    }
    double gain = wait(saved) - kMargin * cost;
    // What is on its way would be wasted, unless it is long in coming.
    if (view.UnderWay(t, *gap))
      gain = std::min(gain, wait(view.under_way_bytes) - kMargin * cost - kUnderWaySeconds);
    if (gain > best_gain) {
      best_gain = gain;
      best = BlockRef{t, *gap};
    }
  }
  return best;
}

}  // namespace sparkv
