#include "edge/config.h"

#include "tests/catch.h"
#include "tests/common/config/example_config.h"
#include "tests/testing/paths.h"

namespace sparkv {
namespace {

const char* const kNoEnvironment[] = {nullptr};

absl::StatusOr<EdgeConfig> Config(const std::vector<std::string>& args) {
  absl::StatusOr<Settings> settings = Settings::Create(EdgeSettings(), kEdgeEnvPrefix);
  REQUIRE_OK(settings);
  REQUIRE_OK(settings->Load(args, 0, kNoEnvironment));
  return MakeEdgeConfig(*settings);
}

TEST_CASE("flags of tables reach the configuration") {
  const auto config =
      Config({"--model", "m.gguf", "--data-dir", "d", "--server", "h:1", "--insecure",
              "--link-mbit", "40", "--link-rtt-ms", "20", "--kv-budget-bytes", "64MiB", "--policy",
              "cake", "--attention", "sparge:0.9"});
  REQUIRE_OK(config);
  CHECK(config->shaped);
  CHECK(config->link.rtt_ms == 20);
  CHECK(config->session.kv_budget_bytes == 64 << 20);
  CHECK(config->session.policy == v1::POLICY_CAKE);
  CHECK(config->session.decoder.attention.ToString() == "sparge:0.9");
  CHECK_FALSE(config->tls.enabled);
  CHECK(config->contexts.codec.empty());
  CHECK(config->contexts.profile_wait == absl::ZeroDuration());
}

TEST_CASE("settings that exclude each other are refused by name") {
  const std::vector<std::string> base = {"--model", "m.gguf", "--data-dir", "d"};
  const auto refuse = [&base](std::vector<std::string> more, const char* name) {
    more.insert(more.begin(), base.begin(), base.end());
    const auto config = Config(more);
    REQUIRE(absl::IsInvalidArgument(config.status()));
    CHECK(std::string(config.status().message()).find(name) != std::string::npos);
  };
  refuse({"--link-mbit", "40"}, "server");
  refuse({"--server", "h:1", "--link-mbit", "40", "--link-trace", "t"}, "link.trace");
  refuse({"--server", "h:1", "--insecure", "--tls-ca", "ca.pem"}, "tls.ca");
  refuse({"--attention", "sparge:2"}, "attention");
}

TEST_CASE("the example configuration loads and names every setting") {
  const std::string path = testing::SourcePath("deploy/config/edge.toml");
  auto settings = Settings::Create(EdgeSettings(), kEdgeEnvPrefix);
  REQUIRE_OK(settings);
  REQUIRE_OK(settings->LoadFile(path));
  testing::CheckExampleConfig(EdgeSettings(), path);
}

}  // namespace
}  // namespace sparkv
