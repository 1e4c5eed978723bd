// A real sparkv-server as a child process.
#pragma once

#include <signal.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "edge/cli/subprocess.h"
#include "tests/edge/daemon_fixture.h"
#include "tests/testing/paths.h"

namespace sparkv::testing {

class ServerProcess {
 public:
  ServerProcess(const std::string& model, const std::string& data_dir,
                const std::vector<std::string>& extra = {"--insecure"}) {
    std::vector<std::string> argv = {BuiltProgram("server/sparkv-server"),
                                     "--listen",
                                     "127.0.0.1:0",
                                     "--model",
                                     model,
                                     "--data-dir",
                                     data_dir};
    argv.insert(argv.end(), extra.begin(), extra.end());
    absl::StatusOr<std::unique_ptr<cli::Subprocess>> process =
        cli::Subprocess::Start(argv, data_dir + ".log");
    REQUIRE_OK(process);
    process_ = *std::move(process);
    const absl::StatusOr<std::string> address =
        process_->ReadUntil("listening on ", absl::Minutes(2));
    REQUIRE_OK(address);
    address_ = *address;
  }

  const std::string& address() const { return address_; }
  // kill -9.
  void Kill() { ::kill(process_->pid(), SIGKILL); }

 private:
  std::unique_ptr<cli::Subprocess> process_;
  std::string address_;
};

// An edge with a server, TLS off.
inline EdgeConfig EdgeWithServer(const TempFolder& folder, const std::string& server) {
  EdgeConfig config = LocalConfig(folder);
  config.data_dir = folder.path() + "/edge";
  config.server = server;
  config.session.policy = v1::POLICY_STREAM;
  return config;
}

}  // namespace sparkv::testing
