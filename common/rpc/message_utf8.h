// Protobuf's `string` fields must be UTF-8: a message with other bytes cannot be parsed by its
// receiver.
#pragma once

#include <google/protobuf/message.h>

#include "absl/status/status.h"

namespace sparkv {

// InvalidArgument "question is not UTF-8: byte 0xE6 at offset 12", naming the first such field,
// also of messages within.
absl::Status CheckUtf8(const google::protobuf::Message& message);

// Replaces what is not UTF-8 by U+FFFD: for what comes from files, folders and other programs.
void MakeUtf8Valid(google::protobuf::Message* message);

}  // namespace sparkv
