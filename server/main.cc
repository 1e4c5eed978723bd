// sparkv-server: precomputes, stores and streams the KV caches of long contexts.
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/base/stdio.h"
#include "common/llm/runtime_env.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/listen_address.h"
#include "kernels/cpu_features.h"
#include "server/config.h"
#include "server/llm_prefiller.h"
#include "sparkv_build_info.h"

namespace sparkv {
namespace {

constexpr const char* kSummary =
    "sparkv-server: prefills long contexts once, stores their KV caches and streams them to edges.";
constexpr const char* kExamples =
    "\nexample:\n"
    "  sparkv-server --model SmolLM2-135M-Instruct.Q4_1.gguf --data-dir /var/lib/sparkv --listen "
    "0.0.0.0:7070 \\\n"
    "                --disk-budget 50GiB --tls-cert server.crt --tls-key server.key\n";

void PrintVersion() {
  std::printf("sparkv-server %s\ncommit   %s\nbuild    %s, %s\ncpu      %s\n", SPARKV_VERSION,
              SPARKV_COMMIT, SPARKV_BUILD_TYPE, SPARKV_COMPILER, kernels::CpuFeatures().c_str());
}

absl::Status Serve(const ServerConfig& config, const sigset_t& signals) {
  spdlog::info("sparkv-server {} ({})", SPARKV_VERSION, SPARKV_COMMIT);
  ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::Load(config.model));
  spdlog::info("model {} ({}), {} layers, context {}", model->config().name,
               model->config().architecture, model->config().layers,
               model->config().context_length);
  KvServerOptions options = config.server;
  options.store.on_drop = [](const Digest& key, uint64_t contexts, std::string_view reason) {
    spdlog::warn("column {} cannot be used and is dropped, with {} contexts that need it: {}",
                 DigestToHex(key), contexts, reason);
  };
  options.service.version = absl::StrCat(SPARKV_VERSION, " (", SPARKV_COMMIT, ")");
  ASSIGN_OR_RETURN(const std::unique_ptr<KvServer> server,
                   KvServer::Start(std::make_unique<LlmPrefiller>(
                                       model, DecoderOptions{.threads = config.threads}),
                                   options));
  for (const ServerCodec* codec : server->codecs().WithProfile()) {
    spdlog::info("profile {} of codec {}, {} bytes", DigestToHex(codec->profile->digest()),
                 codec->info().name, codec->profile->bytes().size());
  }
  const RecoveryReport& recovery = server->store().recovery();
  const StoreUsage usage = server->store().Usage();
  spdlog::info("store {}: {} contexts, {} of {} bytes", options.store.path, usage.contexts,
               usage.used_bytes, usage.budget_bytes);
  if (recovery.removed_files + recovery.dropped_columns != 0) {
    spdlog::warn(
        "store put right: {} stray files removed, {} columns without their file and {} contexts "
        "dropped",
        recovery.removed_files, recovery.dropped_columns, recovery.dropped_contexts);
  }
  if (options.tls.empty())
    spdlog::warn("TLS is off: the link is neither encrypted nor authenticated");
  if (!config.port_file.empty()) {
    RETURN_IF_ERROR(WriteFileDurably(config.port_file, absl::StrCat(server->port(), "\n")));
  }
  std::printf("listening on %s\n", ShownAddress(options.listen, server->port()).c_str());
  std::fflush(stdout);
  int signal = 0;
  ::sigwait(&signals, &signal);
  spdlog::info("stopping after signal {}", signal);
  server->Shutdown(config.grace);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  // Before any thread: all inherit the mask, and only sigwait takes these.
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  absl::StatusOr<Settings> settings = Settings::Create(ServerSettings(), kServerEnvPrefix);
  const auto fail = [](const absl::Status& status, int code) {
    std::fprintf(stderr, "sparkv-server: %s\n", std::string(status.message()).c_str());
    return code;
  };
  if (!settings.ok()) return fail(settings.status(), 1);
  const auto line = settings->Load(std::vector<std::string>(argv + 1, argv + argc));
  if (!line.ok()) return fail(line.status(), 2);
  if (line->help) {
    std::fputs(settings->Help("sparkv-server", kSummary, kExamples).c_str(), stdout);
    return 0;
  }
  if (line->version) {
    PrintVersion();
    return 0;
  }
  if (line->print_config) {
    std::fputs(settings->Print().c_str(), stdout);
    return 0;
  }
  const absl::StatusOr<ServerConfig> config = MakeServerConfig(*settings);
  if (!config.ok()) return fail(config.status(), 2);
  spdlog::set_default_logger(spdlog::stderr_logger_mt("server"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  spdlog::set_level(spdlog::level::from_str(config->log_level));
  const absl::Status status = Serve(*config, signals);
  return status.ok() ? 0 : fail(status, 1);
}

}  // namespace
}  // namespace sparkv

int main(int argc, char** argv) {
  sparkv::OpenStandardStreams();
  sparkv::EnsurePassiveOpenMp(argc, argv);
  sparkv::QuietGrpc();
  return sparkv::FinishStdout("sparkv-server", sparkv::Main(argc, argv));
}
