// How a prefill attends: `dense`, or `sparge[:tau]`, where blocks of queries visit those key blocks
// that hold most of their attention (kernels/block_select.h).
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sparkv {

struct AttentionOptions {
  bool sparse = false;
  float tau = 0.98f;         // mass of the pooled map that is visited, 0..1
  float theta = 0.6f;        // self-similarity from which a block may stand for its rows
  float skip_below = 10.0f;  // see BlockAttentionArgs

  bool operator==(const AttentionOptions&) const = default;
  std::string ToString() const;  // what ParseAttention reads
};

// "dense", "sparge" or "sparge:0.95" (tau, above 0 and at most 1). InvalidArgument.
absl::StatusOr<AttentionOptions> ParseAttention(std::string_view text);

}  // namespace sparkv
