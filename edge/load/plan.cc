#include "edge/load/plan.h"

#include <algorithm>

namespace sparkv {

uint32_t LoadProblem::tokens() const {
  uint32_t sum = 0;
  for (const uint32_t n : column_tokens) sum += n;
  return sum;
}

double PrefixSeconds(const LoadProblem& problem, uint32_t t, uint32_t depth) {
  if (depth == 0) return 0;
  const uint32_t rows = problem.column_tokens[t];
  return depth * problem.compute.Project(rows) +
         (depth - 1) * problem.compute.Attend(problem.begin(t), rows);
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
