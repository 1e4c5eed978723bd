#include "edge/cli/exit_code.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace sparkv::cli {

const char kExitCodeHelp[] =
    "exit codes:\n"
    "  0 ok               2 usage                 3 not found       4 unavailable (daemon or "
    "server)\n"
    "  5 invalid value    6 queue or memory full  7 damaged data  130 interrupted  1 anything else";

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kNotFound:
      return 3;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return 4;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
      return 5;
    case absl::StatusCode::kResourceExhausted:
      return 6;
    case absl::StatusCode::kDataLoss:
      return 7;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitOther;
  }
}

std::string StatusName(absl::StatusCode code) { return absl::StatusCodeToString(code); }

int Report(const absl::Status& status, bool json) {
  if (status.ok()) return kExitOk;
  if (json) {
    const nlohmann::ordered_json error = {
        {"error",
         {{"code", StatusName(status.code())}, {"message", std::string(status.message())}}}};
    std::printf("%s\n",
                error.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    std::fflush(stdout);
  } else {
    std::fprintf(stderr, "sparkv: %s\n", std::string(status.message()).c_str());
  }
  return ExitCode(status);
}

}  // namespace sparkv::cli
