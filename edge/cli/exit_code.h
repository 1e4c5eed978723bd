// What the tool's exit codes mean, and errors as text or JSON.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sparkv::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitOther = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

// 0 ok, 2 usage, 3 not found, 4 unavailable, 5 invalid value or precondition, 6 exhausted, 7 data
// loss, 130 interrupted, 1 anything else.
int ExitCode(const absl::Status& status);

// Lines for --help.
extern const char kExitCodeHelp[];

// "NOT_FOUND" and so on: the canonical name.
std::string StatusName(absl::StatusCode code);

// Prints the error, unless ok: `sparkv: message` on stderr or, with json, {"error": {"code",
// "message"}} on stdout. Returns the exit code.
int Report(const absl::Status& status, bool json);

}  // namespace sparkv::cli
