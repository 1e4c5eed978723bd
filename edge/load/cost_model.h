// Compute costs of this device, measured with the real operators.
#pragma once

#include "absl/status/statusor.h"
#include "common/kv/kv_cache.h"
#include "edge/load/plan.h"
#include "edge/load/ports.h"

namespace sparkv {

// Times PROJ, ATTN and QUERY on one layer for a second or less. `pool` must have
// room for 2048 tokens; ResourceExhausted otherwise. `vocabulary` > 0 bounds the token ids used.
absl::StatusOr<ComputeCosts> MeasureComputeCosts(BlockCompute* compute,
                                                 std::shared_ptr<KvPagePool> pool,
                                                 uint32_t vocabulary);

}  // namespace sparkv
