#include "edge/edge_daemon.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/listen_address.h"
#include "edge/edge_service.h"
#include "kernels/cpu_features.h"
#include "sparkv_build_info.h"

namespace sparkv {
namespace {

// Beside the queue: calls that answer at once, and those that will be told that the queue is full.
constexpr int kSpareThreads = 16;
constexpr std::chrono::milliseconds kShutdownGrace(150);

}  // namespace

std::string EdgeVersion() {
  return absl::StrCat(SPARKV_VERSION, " (", SPARKV_COMMIT, ", ", SPARKV_BUILD_TYPE, ", ",
                      SPARKV_COMPILER, ")");
}

absl::StatusOr<std::unique_ptr<EdgeDaemon>> EdgeDaemon::Start(const EdgeConfig& config) {
  if (!config.listen.empty()) {
    RETURN_IF_ERROR(CheckListenAddress(config.listen));
    RETURN_IF_ERROR(CheckSocketFree(config.listen));
  }
  std::unique_ptr<EdgeDaemon> daemon(new EdgeDaemon);
  ASSIGN_OR_RETURN(daemon->model_, Model::Load(config.model));
  ASSIGN_OR_RETURN(std::unique_ptr<Catalogue> catalogue,
                   Catalogue::Open(config.data_dir + "/contexts"));
  if (!config.server.empty()) {
    std::string target = config.server;
    ClientTls tls = config.tls;
    if (config.shaped) {
      ASSIGN_OR_RETURN(daemon->link_, ShapedLink::Start(config.server, config.link));
      target = daemon->link_->address();
      // The relay's own address is not what the certificate names.
      if (tls.server_name.empty())
        tls.server_name = config.server.substr(0, config.server.rfind(':'));
    }
    ASSIGN_OR_RETURN(daemon->server_client_, ServerClient::Create(target, tls, config.server));
  }
  ProfileFetcher fetcher;
  if (ServerClient* server = daemon->server_client_.get(); server != nullptr) {
    fetcher = [server](const Digest& digest, uint64_t max_bytes,
                       const std::function<void(uint64_t, uint64_t)>& progress,
                       const CancelledFn& cancelled) {
      return server->GetProfile(digest, max_bytes, progress, cancelled);
    };
  }
  ASSIGN_OR_RETURN(daemon->profiles_,
                   ProfileStore::Open({.folder = config.data_dir + "/profiles",
                                       .model_fingerprint = daemon->model_->fingerprint()},
                                      std::move(fetcher)));
  daemon->contexts_ =
      std::make_unique<Contexts>(daemon->model_, std::move(catalogue), daemon->server_client_.get(),
                                 daemon->profiles_.get(), config.contexts);
  ASSIGN_OR_RETURN(daemon->sessions_,
                   Sessions::Create(daemon->model_, daemon->contexts_.get(), config.session));
  daemon->service_ = std::make_unique<EdgeService>(
      daemon->model_.get(), daemon->contexts_.get(), daemon->sessions_.get(),
      EdgeFacts{.version = EdgeVersion(),
                .server = config.server,
                .link = config.link_text,
                .cpu_features = kernels::CpuFeatures()});

  grpc::EnableDefaultHealthCheckService(true);
  static const bool reflection = [] {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  (void)reflection;
  grpc::ServerBuilder builder;
  ApplyServerOptions(&builder);
  grpc::ResourceQuota quota("sparkv-edge");
  quota.SetMaxThreads(static_cast<int>(config.session.max_queue) + kSpareThreads);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  // A second daemon on the same port must fail, not share it.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  int port = 0;
  if (!config.listen.empty())
    builder.AddListeningPort(config.listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(daemon->service_.get());
  daemon->server_ = builder.BuildAndStart();
  if (daemon->server_ == nullptr || (!config.listen.empty() && port == 0)) {
    return absl::UnavailableError(absl::StrCat("listen: cannot listen on ", config.listen,
                                               "; is the address right and the port free?"));
  }
  if (!config.listen.empty()) daemon->address_ = ShownAddress(config.listen, port);
  return daemon;
}

EdgeDaemon::~EdgeDaemon() { Stop(); }

std::shared_ptr<grpc::Channel> EdgeDaemon::InProcessChannel() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  return server_->InProcessChannel(arguments);
}

void EdgeDaemon::Stop() {
  if (service_) service_->Stop();
  if (server_client_) server_client_->CancelAll();
  if (profiles_) profiles_->Stop();
  if (sessions_) sessions_->Shutdown();
  if (server_) server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
}

}  // namespace sparkv
