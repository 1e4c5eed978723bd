#include "server/config.h"

#include "tests/catch.h"

namespace sparkv {
namespace {

const char* const kNoEnvironment[] = {nullptr};

TEST_CASE("The server's table is sound and its defaults make a configuration") {
  auto settings = Settings::Create(ServerSettings(), kServerEnvPrefix);
  REQUIRE_OK(settings);
  REQUIRE_OK(settings->Load({"--model", "m.gguf", "--disk-budget", "3MiB", "--tls-cert", "c", "--tls-key", "k"}, 0, kNoEnvironment));
  const auto config = MakeServerConfig(*settings);
  REQUIRE_OK(config);
  CHECK(config->model == "m.gguf");
  CHECK(config->server.store.budget_bytes == 3 << 20);
  CHECK(config->server.service.default_codec == "generic");
  CHECK(config->server.service.max_fetch_streams == 64);
  CHECK(config->server.precompute.encode_threads >= 1);
  CHECK(config->server.tls.certificate == "c");
  auto printed = Settings::Create(ServerSettings(), kServerEnvPrefix);
  REQUIRE_OK(printed->LoadToml(settings->Print(), "printed"));
  CHECK(printed->GetBytes("disk_budget") == 3 << 20);
}

TEST_CASE("Half a TLS pair, no model and an unknown codec are refused") {
  auto settings = Settings::Create(ServerSettings(), kServerEnvPrefix);
  CHECK(settings->Load({}, 0, kNoEnvironment).status().message().find("--model") != std::string::npos);
  REQUIRE_OK(settings->Load({"--model", "m", "--tls-cert", "c"}, 0, kNoEnvironment));
  CHECK(absl::IsInvalidArgument(MakeServerConfig(*settings).status()));
  CHECK_FALSE(settings->Load({"--codec", "zip"}, 0, kNoEnvironment).ok());
}

}  // namespace
}  // namespace sparkv
