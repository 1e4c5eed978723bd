// Attention-aware transform coding with a model profile: `aatc`, and `aatc-pred` which also
// predicts. FORMAT.md section 4.6.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/codec/codec.h"
#include "common/codec/profile.h"
#include "common/codec/residual.h"

namespace sparkv {

const CodecInfo& AatcInfo();
const CodecInfo& AatcPredInfo();

// A decoder for what the profile was made for.
// FailedPrecondition for a profile of another codec; InvalidArgument for an embedding of another
// width.
absl::StatusOr<std::unique_ptr<ResidualDecoder>> MakeResidualDecoder(
    std::shared_ptr<const CodecProfile> profile, TokenEmbedding embedding);

// The codec that a profile is for: FailedPrecondition when it is none of these.
absl::StatusOr<const CodecInfo*> ProfileCodec(const CodecProfile& profile);

}  // namespace sparkv
