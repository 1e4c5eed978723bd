// The encoder of `aatc` and `aatc-pred`; see dec_aatc.h.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/codec/enc_codec.h"
#include "common/codec/enc_planes.h"
#include "common/codec/profile.h"
#include "common/codec/residual.h"

namespace sparkv {

// Takes about a second for a large profile: it inverts the transforms. Errors as of
// MakeResidualDecoder; InvalidArgument when a transform cannot be inverted.
absl::StatusOr<std::unique_ptr<ColumnEncoder>> MakeResidualEncoder(
    std::shared_ptr<const CodecProfile> profile, TokenEmbedding embedding);

// The first half of its EncodeColumn, for calibration: quantized blocks [layers], layer 0's empty.
absl::StatusOr<std::vector<QuantizedBlock>> QuantizeColumn(const ColumnEncoder& residual_encoder,
                                                           const ColumnInput& in, ThreadPool* pool);

}  // namespace sparkv
