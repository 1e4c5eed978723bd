// Where the tool's requests go: the daemon, or with --local one inside this process.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "edge/cli/interrupt.h"
#include "edge/edge_daemon.h"
#include "sparkv/v1/edge.grpc.pb.h"

namespace sparkv::cli {

// Options of every command that talks to a daemon.
struct ClientOptions {
  std::string edge = "127.0.0.1:7071";
  bool json = false;
  bool local = false;
  // With --local:
  std::string model;
  std::string data_dir;  // empty: a temporary one
  std::string kv_dtype = "f16";
  std::string attention = "dense";
  int threads = 0;
  std::string kv_budget = "1GiB";
};

void AddClientOptions(CLI::App* command, ClientOptions* options);

// Thread-compatible.
class Client {
 public:
  // Unavailable (no daemon answers), or what a local daemon fails with.
  static absl::StatusOr<std::unique_ptr<Client>> Open(const ClientOptions& options);
  ~Client();

  v1::Edge::Stub* stub() { return stub_.get(); }
  InterruptWatch* watch() { return watch_.get(); }
  const Model* local_model() const { return daemon_ ? &daemon_->model() : nullptr; }

  // Of calls that answer at once: a daemon that hangs must not hang this tool.
  static void SetDeadline(grpc::ClientContext* context);
  // The status of a finished call; an unreachable daemon gets a hint, an interrupted call is
  // Cancelled "interrupted".
  absl::Status Finish(const grpc::Status& status) const;

 private:
  Client() = default;
  std::string edge_;
  std::string temporary_;  // removed at the end
  std::unique_ptr<InterruptWatch> watch_;
  std::unique_ptr<EdgeDaemon> daemon_;
  std::unique_ptr<v1::Edge::Stub> stub_;
};

}  // namespace sparkv::cli
