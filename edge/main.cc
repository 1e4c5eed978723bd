// sparkv-edge: the daemon.
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "common/base/file.h"
#include "common/base/stdio.h"
#include "common/config/settings.h"
#include "common/llm/runtime_env.h"
#include "common/rpc/grpc_log.h"
#include "edge/edge_daemon.h"
#include "kernels/cpu_features.h"

namespace sparkv {
namespace {

constexpr char kHelpTail[] =
    "examples:\n"
    "  sparkv-edge --model M.gguf --server cloud.example:7070 --tls-ca ca.pem\n"
    "  sparkv-edge --model M.gguf --listen unix:/tmp/sparkv-edge.sock      # no server: a local "
    "engine\n"
    "  sparkv-edge --config edge.toml --print-config\n";

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "sparkv-edge: %s\n", std::string(status.message()).c_str());
  return code;
}

int Main(int argc, char** argv) {
  absl::StatusOr<Settings> settings = Settings::Create(EdgeSettings(), kEdgeEnvPrefix);
  if (!settings.ok()) return Fail(settings.status(), 1);
  const absl::StatusOr<Settings::CommandLine> line =
      settings->Load(std::vector<std::string>(argv + 1, argv + argc));
  if (!line.ok()) return Fail(line.status(), 2);
  if (line->help) {
    std::fputs(settings
                   ->Help("sparkv-edge",
                          "Answers questions about long contexts, loading their KV cache from a "
                          "server and by computing it here at once.",
                          kHelpTail)
                   .c_str(),
               stdout);
    return 0;
  }
  if (line->version) {
    std::printf("sparkv-edge %s\ncpu: %s\n", EdgeVersion().c_str(), kernels::CpuFeatures().c_str());
    return 0;
  }
  if (line->print_config) {
    std::fputs(settings->Print().c_str(), stdout);
    return 0;
  }
  const absl::StatusOr<EdgeConfig> config = MakeEdgeConfig(*settings);
  if (!config.ok()) return Fail(config.status(), 2);
  auto log = std::make_shared<spdlog::logger>("sparkv-edge",
                                              std::make_shared<spdlog::sinks::stderr_sink_mt>());
  log->set_level(spdlog::level::from_str(config->log_level));
  spdlog::set_default_logger(log);

  // Blocked before any thread is made, so that only the one below gets them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  spdlog::info("sparkv-edge {}, model {}", EdgeVersion(), config->model);
  const absl::StatusOr<std::unique_ptr<EdgeDaemon>> daemon = EdgeDaemon::Start(*config);
  if (!daemon.ok()) return Fail(daemon.status(), 1);
  for (const std::string& broken : (*daemon)->broken_contexts())
    spdlog::warn("context file left alone: {}", broken);
  const std::string& address = (*daemon)->address();
  if (!config->port_file.empty()) {
    const absl::Status written = WriteFileDurably(config->port_file, address + "\n");
    if (!written.ok()) return Fail(written, 1);
  }
  spdlog::info("server {}, link {}", config->server.empty() ? "none" : config->server,
               config->link_text.empty() ? "as it is" : config->link_text);
  std::printf("listening on %s\n", address.c_str());
  std::fflush(stdout);

  int signal_number = 0;
  sigwait(&signals, &signal_number);
  spdlog::info("ending: {}", strsignal(signal_number));
  (*daemon)->Stop();
  return 0;
}

}  // namespace
}  // namespace sparkv

int main(int argc, char** argv) {
  sparkv::OpenStandardStreams();
  sparkv::EnsurePassiveOpenMp(argc, argv);
  sparkv::QuietGrpc();
  return sparkv::FinishStdout("sparkv-edge", sparkv::Main(argc, argv));
}
