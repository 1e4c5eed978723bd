#include "edge/load/plan.h"

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

}  // namespace sparkv
