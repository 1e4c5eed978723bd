// A listing of a GGUF file for people.
#pragma once

#include <string>

#include "common/gguf/gguf_reader.h"

namespace sparkv {

// Metadata (long strings and arrays shortened, bytes that are not printable escaped), then one line
// for each tensor: name, type, dimensions (fastest first), bytes and offset in the file.
std::string GgufSummary(const GgufReader& reader);

}  // namespace sparkv
