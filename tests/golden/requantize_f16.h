// The C++ twin of scripts/make_f16_gguf.py, for tests on machines without Python packages: byte for
// byte the same file.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sparkv::testing {

// Writes a copy of a GGUF whose quantized tensors are the f16 rounding of their dequantized values.
absl::Status RequantizeToF16(const std::string& source, const std::string& target);

}  // namespace sparkv::testing
