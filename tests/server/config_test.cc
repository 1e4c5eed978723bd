#include "server/config.h"

#include "tests/catch.h"
#include "tests/common/config/example_config.h"
#include "tests/testing/paths.h"

namespace sparkv {
namespace {

const char* const kNoEnvironment[] = {nullptr};

TEST_CASE("The server's table is sound and its defaults make a configuration") {
  auto settings = Settings::Create(ServerSettings(), kServerEnvPrefix);
  REQUIRE_OK(settings);
  REQUIRE_OK(settings->Load(
      {"--model", "m.gguf", "--disk-budget", "3MiB", "--tls-cert", "c", "--tls-key", "k"}, 0,
      kNoEnvironment));
  const auto config = MakeServerConfig(*settings);
  REQUIRE_OK(config);
  CHECK(config->model == "m.gguf");
  CHECK(config->server.store.budget_bytes == 3 << 20);
  CHECK(config->server.default_codec.empty());
  CHECK(config->server.profiles.empty());
  CHECK(config->server.service.max_fetch_streams == 64);
  CHECK(config->server.precompute.encode_threads >= 1);
  CHECK(config->server.tls.certificate == "c");
  auto printed = Settings::Create(ServerSettings(), kServerEnvPrefix);
  REQUIRE_OK(printed->LoadToml(settings->Print(), "printed"));
  CHECK(printed->GetBytes("disk_budget") == 3 << 20);
}

TEST_CASE(
    "Profiles come as repeated flags or a list, and a codec that needs one may be the default") {
  auto settings = Settings::Create(ServerSettings(), kServerEnvPrefix);
  REQUIRE_OK(settings->Load({"--model", "m", "--insecure", "--codec", "aatc", "--profile", "a.skvp",
                             "--profile", "b.skvp"},
                            0, kNoEnvironment));
  auto config = MakeServerConfig(*settings);
  REQUIRE_OK(config);
  CHECK(config->server.default_codec == "aatc");
  CHECK(config->server.profiles == std::vector<std::string>{"a.skvp", "b.skvp"});
  settings = Settings::Create(ServerSettings(), kServerEnvPrefix);
  REQUIRE_OK(settings->LoadToml("profile = ['c.skvp', 'd.skvp']", "file"));
  REQUIRE_OK(settings->Load({"--model", "m", "--insecure"}, 0, kNoEnvironment));
  CHECK(MakeServerConfig(*settings)->server.profiles ==
        std::vector<std::string>{"c.skvp", "d.skvp"});
}

TEST_CASE("Half a TLS pair, no model and an unknown codec are refused") {
  auto settings = Settings::Create(ServerSettings(), kServerEnvPrefix);
  CHECK(settings->Load({}, 0, kNoEnvironment).status().message().find("--model") !=
        std::string::npos);
  REQUIRE_OK(settings->Load({"--model", "m", "--tls-cert", "c"}, 0, kNoEnvironment));
  CHECK(absl::IsInvalidArgument(MakeServerConfig(*settings).status()));
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"--model", "m"}, {"--model", "m", "--insecure", "--tls-cert", "c", "--tls-key", "k"}}) {
    auto tls = Settings::Create(ServerSettings(), kServerEnvPrefix);
    REQUIRE_OK(tls->Load(args, 0, kNoEnvironment));
    CHECK(absl::IsInvalidArgument(MakeServerConfig(*tls).status()));
  }
  CHECK_FALSE(settings->Load({"--codec", "zip"}, 0, kNoEnvironment).ok());
}

TEST_CASE("The example configuration loads and names every setting") {
  const std::string path = testing::SourcePath("deploy/config/server.toml");
  auto settings = Settings::Create(ServerSettings(), kServerEnvPrefix);
  REQUIRE_OK(settings->LoadFile(path));
  REQUIRE_OK(MakeServerConfig(*settings));
  testing::CheckExampleConfig(ServerSettings(), path);
}

}  // namespace
}  // namespace sparkv
