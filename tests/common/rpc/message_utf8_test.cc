#include "common/rpc/message_utf8.h"

#include "sparkv/v1/edge.pb.h"
#include "tests/catch.h"

namespace sparkv {
namespace {

TEST_CASE("the first field that is not UTF-8 is named with the byte and its offset") {
  v1::GenerateRequest request;
  request.set_question("caf\xC3\xA9");
  REQUIRE_OK(CheckUtf8(request));
  request.add_stop("fine");
  request.add_stop("ab\xE6\xAD");
  CHECK(CheckUtf8(request).message() == "stop is not UTF-8: byte 0xE6 at offset 2");
  CHECK(request.stop(1) == "ab\xE6\xAD");
}

TEST_CASE("messages within messages are made valid too, and what is valid stays") {
  v1::ListContextsResponse response;
  response.add_contexts()->set_name("\xFF");
  response.add_contexts()->set_name("\u6b6a");
  response.add_degraded("file \x80.ctx");
  CHECK_FALSE(CheckUtf8(response).ok());
  MakeUtf8Valid(&response);
  REQUIRE_OK(CheckUtf8(response));
  CHECK(response.contexts(0).name() == "\uFFFD");
  CHECK(response.contexts(1).name() == "\u6b6a");
  CHECK(response.degraded(0) == "file \uFFFD.ctx");
}

}  // namespace
}  // namespace sparkv
