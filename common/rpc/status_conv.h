// absl::Status <-> grpc::Status: the only place where one becomes the other.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace sparkv {

// Codes have the same numbers on both sides. Messages are cut at kMaxStatusMessageBytes and invalid
// UTF-8 in them is replaced by U+FFFD, since gRPC carries them in HTTP/2 trailers with a size
// limit.
inline constexpr size_t kMaxStatusMessageBytes = 2048;
grpc::Status ToGrpc(const absl::Status& status);

// A code outside the canonical range becomes Unknown.
absl::Status FromGrpc(const grpc::Status& status);

// The canonical code that a number from the wire (FetchResponse.Failed.code) stands for; Unknown
// otherwise.
absl::StatusCode StatusCodeFromWire(int code);

}  // namespace sparkv
