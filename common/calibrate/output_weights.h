// How errors in keys and values weigh in what attention hands on.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/calibrate/fidelity.h"
#include "common/calibrate/transform_fit.h"
#include "common/llm/decoder.h"
#include "common/llm/model.h"

namespace sparkv {

// [layers][2 * kv_heads] of [head_dim][head_dim]: the K heads' weights, before RoPE, then the V
// heads'. Each side's weights of a layer are 1 on average: how K and V and the layers compare has
// to be measured. Runs on the decoder's thread. progress(text) before each text may end it with an
// error.
absl::StatusOr<std::vector<std::vector<Matrix64>>> MeasureOutputWeights(
    const Model& model, Decoder* decoder, std::span<const FidelityProbe> probes,
    const std::function<absl::Status(size_t text)>& progress);

}  // namespace sparkv
