// The whole daemon as an object: model, contexts, sessions and the gRPC server. `sparkv-edge` runs
// one, `sparkv --local` holds one in its own process, tests start as many as they like.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/llm/model.h"
#include "edge/config.h"

namespace sparkv {

class EdgeService;

// Thread-safe.
class EdgeDaemon {
 public:
  // Loads the model, opens the data folder and listens (not at all when config.listen is empty:
  // only the in-process channel). Errors name the setting: NotFound and the like for the model,
  // InvalidArgument, Unavailable when the address is taken, FailedPrecondition when another program
  // uses the data folder or the Unix socket.
  static absl::StatusOr<std::unique_ptr<EdgeDaemon>> Start(const EdgeConfig& config);
  ~EdgeDaemon();
  EdgeDaemon(const EdgeDaemon&) = delete;
  EdgeDaemon& operator=(const EdgeDaemon&) = delete;

  // "127.0.0.1:43210" or "unix:PATH"; empty without a listener.
  const std::string& address() const { return address_; }
  std::shared_ptr<grpc::Channel> InProcessChannel();
  const Model& model() const { return *model_; }
  // Context files that could not be read, for the log.
  const std::vector<std::string>& broken_contexts() const {
    return contexts_->catalogue().broken();
  }

  // Ends running work (within 200 ms) and the server. Idempotent.
  void Stop();

 private:
  EdgeDaemon() = default;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<ShapedLink> link_;
  std::unique_ptr<ServerClient> server_client_;
  std::unique_ptr<ProfileStore> profiles_;
  std::unique_ptr<Contexts> contexts_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<EdgeService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// "0.1.0 (commit, Release, GNU 12.2.0)".
std::string EdgeVersion();

}  // namespace sparkv
