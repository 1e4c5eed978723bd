#include "edge/cli/input.h"

#include "edge/cli/exit_code.h"
#include "tests/catch.h"

namespace sparkv::cli {
namespace {

TEST_CASE("token ids are numbers with anything between them") {
  CHECK(*ParseTokenIds("[1, 22,\n 333]") == std::vector<int32_t>{1, 22, 333});
  CHECK(*ParseTokenIds("0") == std::vector<int32_t>{0});
  CHECK(*ParseTokenIds("2147483647") == std::vector<int32_t>{2147483647});
  CHECK(ParseTokenIds("2147483648").status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ParseTokenIds("99999999999999999999999999").status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(ParseTokenIds("none").status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("text that is not UTF-8 is named with its offset") {
  CHECK(CheckUtf8("plain, caf\xC3\xA9, \xE6\xAD\xAA, \xF0\x9F\x98\xB8", "text").ok());
  CHECK(CheckUtf8("ab\xE6\xAD", "doc.txt").message() ==
        "doc.txt is not UTF-8: byte 0xE6 at offset 2");
  for (const char* bad : {"\x80", "\xFF", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80",
                          "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "a\xC3"}) {
    CHECK_FALSE(CheckUtf8(bad, "text").ok());
  }
  CHECK(CheckUtf8("\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF", "text")
            .ok());  // edges of the surrogates and the last one
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
