#include "common/rpc/status_conv.h"

#include "common/base/utf8.h"
#include "tests/catch.h"

namespace sparkv {
namespace {

TEST_CASE("Every canonical code survives the way over gRPC and back") {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status in(static_cast<absl::StatusCode>(code), "text");
    CHECK(ToGrpc(in).error_code() == code);
    CHECK(FromGrpc(ToGrpc(in)) == in);
  }
  CHECK(FromGrpc(grpc::Status::OK).ok());
  CHECK(ToGrpc(absl::OkStatus()).ok());
}

TEST_CASE("Codes from the wire that are none become Unknown") {
  CHECK(StatusCodeFromWire(15) == absl::StatusCode::kDataLoss);
  CHECK(StatusCodeFromWire(17) == absl::StatusCode::kUnknown);
  CHECK(StatusCodeFromWire(-1) == absl::StatusCode::kUnknown);
}

TEST_CASE("Messages are bounded and valid UTF-8") {
  const std::string longest(100000, 'a');
  CHECK(ToGrpc(absl::InternalError(longest)).error_message().size() == kMaxStatusMessageBytes + 3);
  CHECK(ToGrpc(absl::InternalError("a\xff\xe6\xad z \xc3\xa9")).error_message() ==
        "a\uFFFD\uFFFD z \u00e9");
  // Cut between characters.
  std::string wide;
  while (wide.size() < kMaxStatusMessageBytes + 10) wide += "\u6b6a";
  const std::string cut = ToGrpc(absl::InternalError(wide)).error_message();
  CHECK(cut.size() == kMaxStatusMessageBytes / 3 * 3 + 3);
  CHECK_FALSE(FindInvalidUtf8(cut));
}

}  // namespace
}  // namespace sparkv
