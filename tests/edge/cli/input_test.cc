#include "edge/cli/input.h"

#include "edge/cli/exit_code.h"
#include "tests/catch.h"

namespace sparkv::cli {
namespace {

TEST_CASE("token ids are numbers with blanks or commas between them") {
  CHECK(*ParseTokenIds("[1, 22,\n 333]") == std::vector<int32_t>{1, 22, 333});
  CHECK(*ParseTokenIds("1 2\r\n3,\n") == std::vector<int32_t>{1, 2, 3});
  CHECK(*ParseTokenIds("0") == std::vector<int32_t>{0});
  CHECK(*ParseTokenIds("2147483647") == std::vector<int32_t>{2147483647});
  CHECK(ParseTokenIds("2147483648").status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ParseTokenIds("99999999999999999999999999").status().code() ==
        absl::StatusCode::kInvalidArgument);
  for (const char* bad :
       {"none", "", " \n", "[]", "[", "1 2 three", "-5", "1.5", "[1, 2", "1, 2]", "0x10"}) {
    INFO(bad);
    CHECK(ParseTokenIds(bad).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("exit codes mean what --help says") {
  CHECK(ExitCode(absl::OkStatus()) == 0);
  CHECK(ExitCode(absl::NotFoundError("")) == 3);
  CHECK(ExitCode(absl::UnavailableError("")) == 4);
  CHECK(ExitCode(absl::InvalidArgumentError("")) == 5);
  CHECK(ExitCode(absl::FailedPreconditionError("")) == 5);
  CHECK(ExitCode(absl::ResourceExhaustedError("")) == 6);
  CHECK(ExitCode(absl::DataLossError("")) == 7);
  CHECK(ExitCode(absl::CancelledError("")) == 130);
  CHECK(ExitCode(absl::InternalError("")) == 1);
}

}  // namespace
}  // namespace sparkv::cli
