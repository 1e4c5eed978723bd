#include "server/kv_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/rpc/listen_address.h"

namespace sparkv {
namespace {

// For calls that answer at once, and the last messages of those that have ended.
constexpr absl::Duration kLastWords = absl::Milliseconds(150);
constexpr int kSpareThreads = 32;  // beside running precomputes: look-ups, lists, polls

}  // namespace

absl::StatusOr<std::unique_ptr<KvServer>> KvServer::Start(std::unique_ptr<Prefiller> prefiller,
                                                          const KvServerOptions& options) {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
  RETURN_IF_ERROR(CheckListenAddress(options.listen));
  RETURN_IF_ERROR(CheckSocketFree(options.listen));
  ASSIGN_OR_RETURN(const auto credentials, MakeServerCredentials(options.tls));
  std::unique_ptr<KvServer> server(new KvServer());
  server->prefiller_ = std::move(prefiller);
  ASSIGN_OR_RETURN(server->codecs_, ServerCodecs::Create(options.profiles, *server->prefiller_,
                                                         options.default_codec));
  ASSIGN_OR_RETURN(server->store_, DiskStore::Open(options.store));
  server->precomputer_ = std::make_unique<Precomputer>(
      server->store_.get(), server->prefiller_.get(), server->codecs_.get(), options.precompute);
  server->service_ = std::make_unique<KvService>(server->store_.get(), server->prefiller_.get(),
                                                 server->codecs_.get(), server->precomputer_.get(),
                                                 options.service);
  grpc::ServerBuilder builder;
  ApplyServerOptions(&builder);
  grpc::ResourceQuota quota("sparkv-server");
  quota.SetMaxThreads(options.service.max_precompute_calls + kSpareThreads);
  builder.SetResourceQuota(quota);
  builder.AddListeningPort(options.listen, credentials, &server->port_);
  builder.RegisterService(server->service_.get());
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || server->port_ == 0) {
    server->server_.reset();
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen,
                                               "; is the address right and the port free?"));
  }
  server->server_->GetHealthCheckService()->SetServingStatus(true);
  return server;
}

void KvServer::Shutdown(absl::Duration grace) {
  if (stopped_ || server_ == nullptr) return;
  stopped_ = true;
  server_->GetHealthCheckService()->SetServingStatus(false);
  service_->BeginShutdown();
  // gRPC would spend the whole grace on a connection without a call.
  const absl::Time deadline = absl::Now() + grace;
  while (service_->calls() > 0 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(10));
  server_->Shutdown(absl::ToChronoTime(absl::Now() + kLastWords));
  server_->Wait();
}

KvServer::~KvServer() {
  Shutdown(absl::ZeroDuration());
  server_.reset();
}

}  // namespace sparkv
