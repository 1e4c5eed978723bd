// Planes of the residual codecs to symbols, FORMAT.md section 4.6.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "common/codec/profile.h"
#include "common/codec/residual.h"
#include "kernels/rans_decode.h"

namespace sparkv {

// A profile's tables laid out for decoding: 1 MiB.
std::unique_ptr<kernels::RansTable[]> BuildProfileTables(const CodecProfile& profile);

// Entropy decoding of the planes of one level of a block. Any bytes are safe: DataLoss. The planes
// of layer 0 hold nothing, and neither does the result. Extra memory: the result and 2 *
// shape.elements() bytes, 16 for each of the 2 * kv_heads * head_dim runs.
absl::StatusOr<BlockResidual> ReadResidual(const CodecInfo& info, const CodecProfile& profile,
                                           std::span<const kernels::RansTable> tables,
                                           uint32_t layer, const BlockShape& shape,
                                           std::span<const std::span<const uint8_t>> planes);

}  // namespace sparkv
