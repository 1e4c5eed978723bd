#include "common/rpc/tls.h"

#include <grpcpp/server.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"
#include "tests/common/rpc/test_certificate.h"
#include "tests/testing/temp_folder.h"

namespace sparkv {
namespace {

struct TestServer {
  std::unique_ptr<grpc::Server> server;
  int port = 0;
  explicit TestServer(const ServerTlsFiles& files) {
    const auto credentials = MakeServerCredentials(files);
    REQUIRE_OK(credentials);
    grpc::ServerBuilder builder;
    ApplyServerOptions(&builder);
    builder.AddListeningPort("127.0.0.1:0", *credentials, &port);
    queue = builder.AddCompletionQueue();
    server = builder.BuildAndStart();
    REQUIRE(server != nullptr);
  }
  ~TestServer() {
    server->Shutdown();
    queue->Shutdown();
    void* tag;
    bool ok;
    while (queue->Next(&tag, &ok)) {
    }
  }
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  bool Reaches(const ClientTls& tls, int seconds) {
    const auto channel = MakeChannel(absl::StrCat("127.0.0.1:", port), tls);
    REQUIRE_OK(channel);
    return (*channel)->WaitForConnected(std::chrono::system_clock::now() +
                                        std::chrono::seconds(seconds));
  }
};

TEST_CASE("A client with the right root reaches a TLS server, and others don't") {
  testing::TempFolder folder;
  const auto ours = testing::MakeTestCertificate(folder.path(), "ours");
  const auto other = testing::MakeTestCertificate(folder.path(), "other");
  TestServer server({ours.certificate, ours.key});
  CHECK(server.Reaches({.enabled = true, .ca_file = ours.certificate}, 20));
  CHECK_FALSE(server.Reaches({.enabled = true, .ca_file = other.certificate}, 1));
  CHECK_FALSE(server.Reaches(
      {.enabled = true, .ca_file = ours.certificate, .server_name = "elsewhere.example"}, 1));
}

TEST_CASE("Without files both sides are insecure") {
  TestServer server({});
  CHECK(server.Reaches({}, 20));
  CHECK_FALSE(MakeChannel("", {}).ok());
}

TEST_CASE("Missing, unreadable and mismatched TLS files are named") {
  testing::TempFolder folder;
  const auto a = testing::MakeTestCertificate(folder.path(), "a");
  const auto b = testing::MakeTestCertificate(folder.path(), "b");
  const std::string junk = folder.path() + "/junk";
  std::ofstream(junk) << "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  const auto message = [](const ServerTlsFiles& files, absl::StatusCode code) {
    const absl::Status status = MakeServerCredentials(files).status();
    INFO(status.ToString());
    CHECK(status.code() == code);
    return std::string(status.message());
  };
  using absl::StatusCode;
  CHECK(message({a.certificate, ""}, StatusCode::kInvalidArgument).find("only the certificate") !=
        std::string::npos);
  CHECK(message({"", a.key}, StatusCode::kInvalidArgument).find("only the key") !=
        std::string::npos);
  CHECK(message({a.certificate, folder.path() + "/none"}, StatusCode::kNotFound).find("TLS key") !=
        std::string::npos);
  CHECK(message({folder.path() + "/none", a.key}, StatusCode::kNotFound).find("TLS certificate") !=
        std::string::npos);
  CHECK(message({a.certificate, b.key}, StatusCode::kInvalidArgument).find("does not belong") !=
        std::string::npos);
  CHECK(message({junk, a.key}, StatusCode::kInvalidArgument).find("no PEM certificate") !=
        std::string::npos);
  CHECK(message({a.certificate, junk}, StatusCode::kInvalidArgument).find("no PEM private key") !=
        std::string::npos);
  CHECK(MakeChannelCredentials({.enabled = true, .ca_file = junk}).status().code() ==
        StatusCode::kInvalidArgument);
  CHECK(MakeChannelCredentials({.enabled = true, .ca_file = "/nonexistent"}).status().code() ==
        StatusCode::kNotFound);
}

}  // namespace
}  // namespace sparkv
