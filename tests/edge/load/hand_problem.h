// Small problems whose plans and bounds can be worked by hand.
#pragma once

#include "edge/load/plan.h"

namespace sparkv::load_testing {

// One column, four layers, no query: PROJ 1 s, ATTN 4 s, a block 3 s on the link.
inline LoadProblem OneColumnProblem() {
  LoadProblem p;
  p.layers = 4;
  p.column_tokens = {1000};
  p.block_bytes.assign(4, 3000);
  p.link_bytes_per_s = 1000;
  p.compute.proj_row = 1e-3;
  p.compute.dense_row = 4e-3;
  return p;
}

}  // namespace sparkv::load_testing
