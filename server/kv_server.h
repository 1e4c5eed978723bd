// The whole server in a process: store, precomputer, service and gRPC listener. main.cc and
// integration tests use it.
#pragma once

#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rpc/tls.h"
#include "server/codecs.h"
#include "server/disk_store.h"
#include "server/kv_service.h"
#include "server/precompute.h"

namespace sparkv {

struct KvServerOptions {
  std::string listen = "127.0.0.1:0";  // host:port; port 0: any free one
  ServerTlsFiles tls;
  std::vector<std::string> profiles;  // files of model profiles, for codecs that need one
  std::string default_codec;  // of requests that name none; empty: aatc-pred where a profile is for
                              // it, else generic
  DiskStoreOptions store;
  PrecomputeOptions precompute;
  KvServiceOptions service;
};

class KvServer {
 public:
  // Reads the profiles, opens the store and listens; ready for calls when it returns. Unavailable
  // "cannot listen on ..."; the errors of ServerCodecs::Create, DiskStore::Open and
  // MakeServerCredentials.
  static absl::StatusOr<std::unique_ptr<KvServer>> Start(std::unique_ptr<Prefiller> prefiller,
                                                         const KvServerOptions& options);
  // Shuts down at once if Shutdown has not been called.
  ~KvServer();

  int port() const { return port_; }
  const ServerCodecs& codecs() const { return *codecs_; }
  DiskStore& store() { return *store_; }
  KvService& service() { return *service_; }
  Precomputer& precomputer() { return *precomputer_; }

  // Not serving for health checks, new work refused, waiting streams ended; what is being sent has
  // `grace` to end, then it is cut.
  void Shutdown(absl::Duration grace);

 private:
  KvServer() = default;
  std::unique_ptr<Prefiller> prefiller_;
  std::unique_ptr<ServerCodecs> codecs_;
  std::unique_ptr<DiskStore> store_;
  std::unique_ptr<Precomputer> precomputer_;
  std::unique_ptr<KvService> service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  bool stopped_ = false;
};

}  // namespace sparkv
