// Compute costs of this device, measured with the real operators.
#pragma once

#include "absl/status/statusor.h"
#include "common/codec/residual.h"
#include "common/kv/kv_cache.h"
#include "edge/load/plan.h"
#include "edge/load/ports.h"

namespace sparkv {

// Times PROJ, ATTN and QUERY on one layer for a second or less. `pool` must have
// room for 2048 tokens; ResourceExhausted otherwise. `vocabulary` > 0 bounds the token ids used.
absl::StatusOr<ComputeCosts> MeasureComputeCosts(BlockCompute* compute,
                                                 std::shared_ptr<KvPagePool> pool,
                                                 uint32_t vocabulary);

// Seconds of FINAL of one token in one layer, with all threads: the codec's own functions on a
// block without information, a few milliseconds. 0 for a model of one layer.
absl::StatusOr<double> MeasureFinalRow(const ResidualDecoder& decoder, const KvGeometry& geometry,
                                       BlockCompute* compute);

}  // namespace sparkv
