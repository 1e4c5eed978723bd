#include "edge/load/plan.h"

#include <algorithm>
#include <limits>

namespace sparkv {

uint32_t LoadProblem::tokens() const {
  uint32_t sum = 0;
  for (const uint32_t n : column_tokens) sum += n;
  return sum;
}

double PrefixSeconds(const LoadProblem& problem, uint32_t t, uint32_t depth) {
  if (depth == 0) return 0;
  double seconds = depth * problem.ProjectSeconds(t);
  for (uint32_t l = 0; l + 1 < depth; ++l) seconds += problem.AttendSeconds(t, l);
  return seconds;
}

double ColumnSeconds(const LoadProblem& problem, uint32_t t, uint32_t depth) {
  const uint32_t streamed = problem.layers - std::max(depth, problem.least_depth());
  return PrefixSeconds(problem, t, depth) + streamed * problem.FinalSeconds(t);
}

ColumnTable::ColumnTable(const LoadProblem& problem)
    : layers_(problem.layers), seconds_(size_t{problem.columns()} * (problem.layers + 1)) {
  for (uint32_t t = 0; t < problem.columns(); ++t) {
    double prefix = 0;
    for (uint32_t d = 0; d <= layers_; ++d) {
      if (d > 0) prefix += problem.ProjectSeconds(t);
      if (d > 1) prefix += problem.AttendSeconds(t, d - 2);
      const uint32_t streamed = layers_ - std::max(d, std::min(problem.least_depth(), layers_));
      seconds_[size_t{t} * (layers_ + 1) + d] = prefix + streamed * problem.FinalSeconds(t);
    }
  }
}

BusyTime::BusyTime(const LoadProblem& problem)
    : link_bytes_per_s_(problem.link_bytes_per_s), charge_(problem.DecodeCharge(1)) {
  const double query = problem.QuerySeconds();
  query_ = query * problem.layers;
  uint64_t bytes = 0;
  double final_seconds = 0;
  for (const uint64_t block : problem.block_bytes) bytes = std::max(bytes, block);
  for (uint32_t t = 0; t < problem.columns(); ++t)
    final_seconds = std::max(final_seconds, problem.FinalSeconds(t));
  after_last_byte_ =
      problem.rtt_s + problem.DecodeSeconds(static_cast<double>(bytes)) + final_seconds + query;
}

double BusyTime::operator()(double computed, double left) const {
  double link = 0;
  if (left > 0) {
    if (link_bytes_per_s_ <= 0) return std::numeric_limits<double>::infinity();
    link = left / link_bytes_per_s_ + after_last_byte_;
  }
  return std::max(link, computed + query_ + charge_ * left);
}

double ProfileSeconds(const LoadProblem& problem, const std::vector<uint32_t>& depth) {
  double computed = 0;
  double left = 0;
  for (uint32_t t = 0; t < problem.columns(); ++t) {
    computed += ColumnSeconds(problem, t, depth[t]);
    for (uint32_t l = depth[t]; l < problem.layers; ++l) {
      left += static_cast<double>(problem.bytes(t, l));
    }
  }
  return BusyTime(problem)(computed, left);
}

void FitDepths(const LoadProblem& problem, std::vector<uint32_t>* depth) {
  for (uint32_t& d : *depth) {
    d = std::clamp(d, problem.least_depth(), problem.layers);
    if (!problem.DepthAllowed(d)) d = 2 * d < problem.layers ? 1 : problem.layers;
  }
}

uint64_t FetchWindowBytes(const LoadProblem& problem) {
  if (problem.link_bytes_per_s <= 0) return 0;
  constexpr uint64_t kBlocks = 3;
  constexpr uint64_t kLeast = 512 << 10;  // two frames of the largest size
  constexpr uint64_t kMost = 64 << 20;    // what Fetch allows
  uint64_t largest = 0;
  for (const uint64_t bytes : problem.block_bytes) largest = std::max(largest, bytes);
  // The estimates may be off by half, and credit comes back one round trip late.
  const double round_trip = std::min(2 * problem.link_bytes_per_s * problem.rtt_s, double{kMost});
  return std::clamp(std::max(kBlocks * std::min(largest, kMost), static_cast<uint64_t>(round_trip)),
                    kLeast, kMost);
}

}  // namespace sparkv
