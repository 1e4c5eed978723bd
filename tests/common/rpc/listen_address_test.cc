#include "common/rpc/listen_address.h"

#include "tests/catch.h"

namespace sparkv {
namespace {

TEST_CASE("a daemon listens on host:port or a Unix socket, and on nothing else") {
  for (const char* good :
       {"127.0.0.1:0", "0.0.0.0:65535", "[::1]:7070", "localhost:1", "unix:/run/x.sock"}) {
    INFO(good);
    CHECK(CheckListenAddress(good).ok());
    CHECK(CheckTargetAddress(good).ok());
  }
  for (const char* bad : {"", ":", ":1", "host", "host:", "host:http", "127.0.0.1:65536",
                          "127.0.0.1:99999999999", "127.0.0.1:-1", "unix:"}) {
    INFO(bad);
    CHECK(CheckListenAddress(bad).code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK_FALSE(CheckTargetAddress("").ok());
  CHECK_FALSE(CheckTargetAddress("host:65536").ok());
  CHECK(CheckTargetAddress("dns:///host").ok());
}

TEST_CASE("clients are told the chosen port") {
  CHECK(ShownAddress("127.0.0.1:0", 7070) == "127.0.0.1:7070");
  CHECK(ShownAddress("[::1]:0", 9) == "[::1]:9");
  CHECK(ShownAddress("unix:/a:b", 1) == "unix:/a:b");
}

}  // namespace
}  // namespace sparkv
