// The gRPC face of the daemon: conversions, client cancellation and one thread for each running
// call.
#pragma once

#include <atomic>
#include <string>

#include "absl/time/time.h"
#include "edge/contexts.h"
#include "edge/session.h"
#include "sparkv/v1/edge.grpc.pb.h"

namespace sparkv {

// What Status tells and does not change.
struct EdgeFacts {
  std::string version;
  std::string server;
  std::string link;
  std::string cpu_features;
};

// Thread-safe. contexts and sessions must outlive it.
class EdgeService final : public v1::Edge::Service {
 public:
  EdgeService(const Model* model, Contexts* contexts, Sessions* sessions, EdgeFacts facts)
      : model_(model), contexts_(contexts), sessions_(sessions), facts_(std::move(facts)) {}

  // From now on every running call behaves as if its client had gone.
  void Stop() { stopping_ = true; }

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override;
  grpc::Status Load(grpc::ServerContext* context, const v1::LoadRequest* request,
                    grpc::ServerWriter<v1::LoadResponse>* writer) override;
  grpc::Status AddContext(grpc::ServerContext* context, const v1::AddContextRequest* request,
                          grpc::ServerWriter<v1::AddContextResponse>* writer) override;
  grpc::Status ListContexts(grpc::ServerContext* context, const v1::ListContextsRequest* request,
                            v1::ListContextsResponse* response) override;
  grpc::Status ShowContext(grpc::ServerContext* context, const v1::ShowContextRequest* request,
                           v1::EdgeContext* response) override;
  grpc::Status DeleteContext(grpc::ServerContext* context, const v1::DeleteContextRequest* request,
                             v1::DeleteContextResponse* response) override;
  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest* request,
                      v1::StatusResponse* response) override;

 private:
  bool Alive(const grpc::ServerContext& context) const {
    return !stopping_ && !context.IsCancelled();
  }
  // The status of a call that has ended: one that only the daemon's end cancelled is Unavailable.
  grpc::Status Ended(const grpc::ServerContext& context, const absl::Status& status) const;
  void MarkLoaded(v1::EdgeContext* context) const;

  const Model* const model_;
  Contexts* const contexts_;
  Sessions* const sessions_;
  const EdgeFacts facts_;
  std::atomic<bool> stopping_{false};
};

}  // namespace sparkv
