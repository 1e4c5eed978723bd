#include "edge/load/depth_search.h"

#include <algorithm>
#include <utility>

namespace sparkv {
namespace {

constexpr uint64_t kMaxBlocks = 256;
constexpr size_t kMaxFront = 128;

// Columns [0, t] with given depths.
struct Partial {
  double computed;
  double left;
  int32_t parent;  // index of columns [0, t - 1]; -1: none
  uint32_t depth;  // of column t
};

class Search {
 public:
  Search(const LoadProblem& problem, const BusyTime& seconds)
      : problem_(problem), seconds_(seconds), columns_(problem) {}

  double Run(std::vector<uint32_t>* depth) {
    const uint32_t layers = problem_.layers;
    double best = ProfileSeconds(problem_, *depth);
    std::vector<std::vector<int32_t>> fronts(layers + 1);  // [depth of the last column]
    for (uint32_t t = 0; t < problem_.columns(); ++t) {
      std::vector<std::vector<int32_t>> next(layers + 1);
      std::vector<int32_t> reach;  // all that end at this depth or above
      double left = 0;             // bytes of layers [d, layers)
      for (uint32_t d = layers; d >= 1; --d) {
        if (d < layers) left += static_cast<double>(problem_.bytes(t, d));
        if (!problem_.DepthAllowed(d)) continue;
        const double computed = columns_(t, d);
        if (t == 0) {
          Append(0, 0, -1, computed, left, d, best, &next[d]);
          continue;
        }
        reach = Merge(reach, fronts[d]);
        for (const int32_t from : reach) {
          Append(pool_[from].computed, pool_[from].left, from, computed, left, d, best, &next[d]);
        }
        Thin(&next[d]);
      }
      fronts = std::move(next);
    }
    int32_t found = -1;
    for (const auto& front : fronts) {
      for (const int32_t i : front) {
        const double v = seconds_(pool_[i].computed, pool_[i].left);
        if (v < best) {
          best = v;
          found = i;
        }
      }
    }
    for (uint32_t t = problem_.columns(); found >= 0 && t-- > 0; found = pool_[found].parent) {
      (*depth)[t] = pool_[found].depth;
    }
    return best;
  }

 private:
  // Drops what already takes as long as the best known profile: later columns only add.
  void Append(double computed, double left, int32_t parent, double more_computed, double more_left,
              uint32_t depth, double best, std::vector<int32_t>* out) {
    const Partial p{computed + more_computed, left + more_left, parent, depth};
    if (seconds_(p.computed, p.left) >= best) return;
    out->push_back(static_cast<int32_t>(pool_.size()));
    pool_.push_back(p);
  }

  // Fronts are sorted by rising `computed` and falling `left`; so is their union without dominated
  // members.
  std::vector<int32_t> Merge(const std::vector<int32_t>& a, const std::vector<int32_t>& b) const {
    std::vector<int32_t> all(a.size() + b.size());
    std::merge(a.begin(), a.end(), b.begin(), b.end(), all.begin(), [this](int32_t x, int32_t y) {
      return std::pair(pool_[x].computed, pool_[x].left) <
             std::pair(pool_[y].computed, pool_[y].left);
    });
    std::vector<int32_t> front;
    for (const int32_t i : all) {
      if (front.empty() || pool_[i].left < pool_[front.back()].left) front.push_back(i);
    }
    return front;
  }

  // Keeps members at even distances of `computed`.
  void Thin(std::vector<int32_t>* front) const {
    if (front->size() <= kMaxFront) return;
    const double from = pool_[front->front()].computed;
    const double width = (pool_[front->back()].computed - from) / kMaxFront;
    std::vector<int32_t> kept;
    double next = from;
    for (const int32_t i : *front) {
      if (pool_[i].computed < next) continue;
      kept.push_back(i);
      next = pool_[i].computed + width;
    }
    *front = std::move(kept);
  }

  const LoadProblem& problem_;
  const BusyTime& seconds_;
  const ColumnTable columns_;
  std::vector<Partial> pool_;
};

}  // namespace

bool BestDepthsFits(const LoadProblem& problem) {
  return uint64_t{problem.columns()} * problem.layers <= kMaxBlocks;
}

double BestDepths(const LoadProblem& problem, const BusyTime& seconds,
                  std::vector<uint32_t>* depth) {
  return Search(problem, seconds).Run(depth);
}

}  // namespace sparkv
