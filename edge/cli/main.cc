// sparkv: the person's tool. It talks to the daemon only (or, with --local, is one).
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "common/base/stdio.h"
#include "common/llm/runtime_env.h"
#include "common/rpc/grpc_log.h"
#include "edge/cli/ask.h"
#include "edge/cli/bench.h"
#include "edge/cli/calibrate.h"
#include "edge/cli/context_command.h"
#include "edge/cli/exit_code.h"
#include "edge/edge_daemon.h"
#include "kernels/cpu_features.h"

namespace sparkv::cli {
namespace {

int Main(int argc, char** argv) {
  CLI::App app("Questions about long contexts, answered by the sparkv-edge daemon on this machine.",
               "sparkv");
  app.require_subcommand(1);
  app.set_version_flag("--version", "sparkv " + EdgeVersion() + "\ncpu: " + kernels::CpuFeatures());
  app.footer(std::string("examples:\n"
                         "  sparkv context add manual.txt --name manual\n"
                         "  sparkv ask manual \"How do I reset the device?\"\n"
                         "  sparkv chat manual\n"
                         "  sparkv status --json\n\n") +
             kExitCodeHelp);
  int exit_code = kExitOk;
  AddContextCommands(&app, &exit_code);
  AddAskCommands(&app, &exit_code);
  AddDaemonCommands(&app, &exit_code);
  AddCalibrateCommand(&app, &exit_code);
  BenchOptions bench;
  absl::Status bench_status;
  AddBenchCommands(&app, &bench, &bench_status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
    if (error.get_exit_code() == 0 || !json) return app.exit(error) == 0 ? kExitOk : kExitUsage;
    Report(absl::InvalidArgumentError(error.what()), json);
    return kExitUsage;
  }
  if (!bench_status.ok()) return Report(bench_status, false);
  return exit_code;
}

}  // namespace
}  // namespace sparkv::cli

int main(int argc, char** argv) {
  sparkv::OpenStandardStreams();
  sparkv::EnsurePassiveOpenMp(argc, argv);
  sparkv::QuietGrpc();
  const int code = sparkv::FinishStdout("sparkv", sparkv::cli::Main(argc, argv));
  // Unloading LibTorch takes longer than a person who pressed Ctrl-C should wait.
  if (code == sparkv::cli::kExitInterrupted) _exit(code);
  return code;
}
