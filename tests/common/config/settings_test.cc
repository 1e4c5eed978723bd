#include "common/config/settings.h"

#include <unistd.h>
#include <cstdio>
#include <fstream>

#include "tests/catch.h"

namespace sparkv {
namespace {

std::vector<Setting> Table() {
  return {
      {.key = "listen", .default_value = "127.0.0.1:0", .help = "Address."},
      {.key = "threads",
       .type = SettingType::kInt,
       .default_value = "2",
       .help = "Threads.",
       .min = 1,
       .max = 64},
      {.key = "disk.budget",
       .type = SettingType::kBytes,
       .default_value = "10GiB",
       .help = "Budget.",
       .min = 0},
      {.key = "disk.sync", .type = SettingType::kBool, .default_value = "true", .help = "Sync."},
      {.key = "rate",
       .type = SettingType::kDouble,
       .default_value = "1.5",
       .help = "Rate.",
       .min = 0,
       .max = 10},
      {.key = "idle",
       .type = SettingType::kDuration,
       .default_value = "30s",
       .help = "Idle.",
       .min = 0,
       .max = 3600},
      {.key = "log_level", .default_value = "info", .help = "Level.", .choices = {"info", "debug"}},
      {.key = "model", .help = "Path.", .required = true},
  };
}

Settings Make() {
  auto settings = Settings::Create(Table(), "SPARKV_T_");
  REQUIRE_OK(settings);
  return *std::move(settings);
}

const char* const kNoEnvironment[] = {nullptr};

TEST_CASE("ParseBytes reads units and rejects what it cannot hold") {
  CHECK(ParseBytes("0").value() == 0);
  CHECK(ParseBytes("4096").value() == 4096);
  CHECK(ParseBytes("10GiB").value() == 10ull << 30);
  CHECK(ParseBytes("10 gib").value() == 10ull << 30);
  CHECK(ParseBytes("1.5MiB").value() == 3ull << 19);
  CHECK(ParseBytes("2MB").value() == 2000000);
  CHECK(ParseBytes("1k").value() == 1024);
  for (const char* bad :
       {"", "GiB", "-1", "1.5", "1.2.3MiB", "1XiB", "99999999TiB", "9223372036854775808", "1e3"}) {
    INFO(bad);
    CHECK(ParseBytes(bad).status().code() == absl::StatusCode::kInvalidArgument);
  }
  CHECK(FormatBytes(10ull << 30) == "10GiB");
  CHECK(FormatBytes(1500) == "1500");
  CHECK(FormatBytes(0) == "0");
}

TEST_CASE("A flag beats the environment, the environment the file, the file the default") {
  const std::string path = "/tmp/sparkv_settings_test." + std::to_string(::getpid());
  std::ofstream(path) << "threads = 3\nrate = 2\nmodel = \"f\"\n[disk]\nbudget = \"1GiB\"\n";
  const std::string config = "SPARKV_T_CONFIG=" + path;
  const char* const env[] = {"SPARKV_T_THREADS=4", "SPARKV_T_RATE=3", config.c_str(), "OTHER=1",
                             nullptr};
  Settings s = Make();
  const auto line = s.Load({"--threads", "5", "--disk-sync=off", "--", "x"}, 1, env);
  std::remove(path.c_str());
  REQUIRE_OK(line);
  CHECK(line->arguments == std::vector<std::string>{"x"});
  CHECK(s.GetInt("threads") == 5);
  CHECK(s.GetDouble("rate") == 3);
  CHECK(s.GetBytes("disk.budget") == 1ull << 30);
  CHECK(s.GetString("listen") == "127.0.0.1:0");
  CHECK_FALSE(s.GetBool("disk.sync"));
  CHECK(s.GetDuration("idle") == absl::Seconds(30));
  CHECK(s.Source("threads") == SettingSource::kFlag);
  CHECK(s.Source("rate") == SettingSource::kEnvironment);
  CHECK(s.Source("model") == SettingSource::kFile);
  CHECK(s.Source("idle") == SettingSource::kDefault);
  // A weaker source called later changes nothing.
  REQUIRE_OK(s.LoadToml("threads = 9", "t"));
  CHECK(s.GetInt("threads") == 5);
}

TEST_CASE("Unknown names are errors that suggest the nearest known one") {
  const auto message = [](const absl::Status& status) {
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  Settings s = Make();
  CHECK(message(s.Load({"--thread", "3"}, 0, kNoEnvironment).status()).find("'--threads'") !=
        std::string::npos);
  CHECK(message(s.LoadToml("[disk]\nbudgte = 1", "c.toml"))
            .find("c.toml:2: unknown key 'disk.budgte'; did you mean "
                  "'disk.budget'?") != std::string::npos);
  const char* const env[] = {"SPARKV_T_TREADS=4", nullptr};
  CHECK(message(s.LoadEnvironment(env)).find("SPARKV_T_THREADS") != std::string::npos);
  CHECK(message(s.SetFromFlag("zzzzzzzz", "1")).find("known: listen") != std::string::npos);
}

TEST_CASE("Values are checked by type and range whatever their source, hidden ones too") {
  Settings s = Make();
  for (const char* toml :
       {"threads = 0", "threads = 65", "threads = \"2\"", "threads = 2.0", "rate = inf",
        "rate = nan", "rate = -1", "log_level = \"x\"", "idle = \"2h\"", "idle = 5", "model = 3",
        "model = [\"a\"]", "disk = 3", "threads = 1\nthreads = 2", "a b", "disk.sync = 1",
        "disk.budget = -1"}) {
    INFO(toml);
    CHECK(s.LoadToml(toml, "t").code() == absl::StatusCode::kInvalidArgument);
  }
  REQUIRE_OK(s.SetFromFlag("threads", "3"));
  CHECK(s.LoadToml("threads = 1000", "t").message() ==
        "t:1: threads = '1000' is out of range; allowed: 1..64");
  CHECK(s.LoadFile("/nonexistent/x.toml").code() == absl::StatusCode::kNotFound);
  CHECK_FALSE(s.Load({"--threads"}, 0, kNoEnvironment).ok());
  CHECK_FALSE(s.Load({"stray"}, 0, kNoEnvironment).ok());
  CHECK_FALSE(s.Load({"--version=1"}, 0, kNoEnvironment).ok());
  // `model` is required, but not to look at the configuration.
  CHECK(s.Load({}, 0, kNoEnvironment).status().message().find("--model") != std::string::npos);
  CHECK(s.Load({"--print-config"}, 0, kNoEnvironment)->print_config);
  CHECK(s.Load({"--help"}, 0, kNoEnvironment)->help);
}

TEST_CASE(
    "A list takes repeated flags, an array of the file or one string, and a variable with colons") {
  const std::vector<Setting> table = {
      {.key = "profile", .type = SettingType::kStrings, .help = "Files."}};
  using Strings = std::vector<std::string>;
  const char* const none[] = {nullptr};
  const char* const two[] = {"T_PROFILE=c:d", nullptr};
  auto settings = Settings::Create(table, "T_");
  REQUIRE_OK(settings);
  CHECK(settings->GetStrings("profile").empty());
  REQUIRE_OK(settings->Load({"--profile", "a", "--profile=b"}, 0, two));
  CHECK(settings->GetStrings("profile") == Strings{"a", "b"});
  auto printed = Settings::Create(table, "T_");
  REQUIRE_OK(printed->LoadToml(settings->Print(), "printed"));
  CHECK(printed->GetStrings("profile") == Strings{"a", "b"});

  auto environment = Settings::Create(table, "T_");
  REQUIRE_OK(environment->LoadToml("profile = 'e'", "file"));
  CHECK(environment->GetStrings("profile") == Strings{"e"});
  REQUIRE_OK(environment->Load({}, 0, two));
  CHECK(environment->GetStrings("profile") == Strings{"c", "d"});

  auto bad = Settings::Create(table, "T_");
  CHECK(absl::IsInvalidArgument(bad->LoadToml("profile = [1]", "file")));
  CHECK(absl::IsInvalidArgument(bad->LoadToml("profile = ['a', '']", "file")));
  CHECK(absl::IsInvalidArgument(bad->Load({"--profile", ""}, 0, none).status()));
  REQUIRE_OK(bad->LoadToml("profile = []", "file"));
  CHECK(bad->GetStrings("profile").empty());
}

TEST_CASE("Print gives a file that loads to the same values") {
  Settings a = Make();
  REQUIRE_OK(a.Load(
      {"--model", "a \"b\"\\\tc", "--threads", "7", "--disk-budget", "1500", "--rate", "0.1"}, 0,
      kNoEnvironment));
  Settings b = Make();
  INFO(a.Print());
  REQUIRE_OK(b.LoadToml(a.Print(), "printed"));
  CHECK(b.GetString("model") == "a \"b\"\\\tc");
  CHECK(b.GetInt("threads") == 7);
  CHECK(b.GetBytes("disk.budget") == 1500);
  CHECK(b.GetDouble("rate") == 0.1);
}

TEST_CASE("A table with a bad default or a repeated flag is refused") {
  CHECK(Settings::Create(
            {{.key = "a", .type = SettingType::kInt, .default_value = "x", .help = ""}}, "P_")
            .status()
            .code() == absl::StatusCode::kInternal);
  CHECK_FALSE(
      Settings::Create({{.key = "a.b", .help = ""}, {.key = "a_b", .help = ""}}, "P_").ok());
}

}  // namespace
}  // namespace sparkv
