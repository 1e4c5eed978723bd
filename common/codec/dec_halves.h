// Runs of f16, FORMAT.md section 3.1: scales, minima, reconstruction levels.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"

namespace sparkv {

// Reads runs * length f16, [runs][length] bits. The caller has bounded runs * length. DataLoss
// names `what` and the first that is not finite. Memory: 4 bytes for each and what DecodeSymbols
// takes.
absl::StatusOr<std::vector<uint16_t>> DecodeHalves(ByteReader& reader, uint32_t runs,
                                                   uint32_t length, std::string_view what);

// DataLoss naming `what` and the first of the halves that has a sign bit, -0 included.
absl::Status CheckNoSign(std::span<const uint16_t> halves, std::string_view what);

}  // namespace sparkv
