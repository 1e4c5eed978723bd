#include "edge/cli/client.h"

#include <stdlib.h>

#include <chrono>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/rpc/listen_address.h"
#include "common/rpc/status_conv.h"

namespace sparkv::cli {
namespace {

absl::StatusOr<std::string> TemporaryFolder() {
  std::error_code error;
  std::string path = (std::filesystem::temp_directory_path(error) / "sparkv-local-XXXXXX").string();
  if (error || mkdtemp(path.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot make a temporary folder like ", path));
  }
  return path;
}

void Remove(const std::string& folder) {
  std::error_code error;
  if (!folder.empty()) std::filesystem::remove_all(folder, error);
}

}  // namespace

void AddClientOptions(CLI::App* command, ClientOptions* options) {
  command->add_option("--edge", options->edge, "address of the daemon")
      ->envname("SPARKV_EDGE")
      ->capture_default_str();
  command->add_flag("--json", options->json, "print JSON, errors included");
  command->add_flag("--local", options->local, "no daemon: run one inside this process");
  command->add_option("--model", options->model, "with --local: the GGUF file")
      ->envname("SPARKV_MODEL");
  command->add_option("--data-dir", options->data_dir,
                      "with --local: keep contexts here; empty: a temporary folder");
  command->add_option("--kv-dtype", options->kv_dtype, "with --local: how K and V are kept")
      ->check(CLI::IsMember({"f16", "f32"}))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "with --local: CPU threads, 0: all cores")
      ->check(CLI::Range(0, 1024));
  command
      ->add_option("--attention", options->attention,
                   "with --local, of a context's tokens: dense or sparge[:TAU]")
      ->capture_default_str();
  command->add_option("--kv-budget", options->kv_budget, "with --local: KV memory")
      ->capture_default_str();
}

absl::StatusOr<std::unique_ptr<Client>> Client::Open(const ClientOptions& options) {
  std::unique_ptr<Client> client(new Client);
  client->edge_ = options.edge;
  if (options.local) {
    if (options.model.empty())
      return absl::InvalidArgumentError("--local needs --model FILE (or SPARKV_MODEL)");
    EdgeConfig config;
    config.model = options.model;
    config.data_dir = options.data_dir;
    if (config.data_dir.empty()) {
      ASSIGN_OR_RETURN(client->temporary_, TemporaryFolder());
      config.data_dir = client->temporary_;
    }
    config.session.policy = v1::POLICY_LOCAL;
    config.session.kv_dtype = options.kv_dtype == "f32" ? KvDtype::kF32 : KvDtype::kF16;
    config.session.decoder.threads = options.threads;
    ASSIGN_OR_RETURN(config.session.decoder.attention, ParseAttention(options.attention));
    ASSIGN_OR_RETURN(config.session.kv_budget_bytes, ParseBytes(options.kv_budget));
    // Before the daemon's threads, which inherit the blocked signals.
    client->watch_ =
        std::make_unique<InterruptWatch>([folder = client->temporary_] { Remove(folder); });
    ASSIGN_OR_RETURN(client->daemon_, EdgeDaemon::Start(config));
    client->stub_ = v1::Edge::NewStub(client->daemon_->InProcessChannel());
    return client;
  }
  if (const absl::Status address = CheckTargetAddress(options.edge); !address.ok())
    return absl::InvalidArgumentError(absl::StrCat("--edge: ", address.message()));
  client->watch_ = std::make_unique<InterruptWatch>();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  // A proxy of the environment has no business between this tool and a daemon on this machine.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  client->stub_ = v1::Edge::NewStub(
      grpc::CreateCustomChannel(options.edge, grpc::InsecureChannelCredentials(), arguments));
  return client;
}

Client::~Client() {
  stub_.reset();
  daemon_.reset();
  watch_.reset();
  Remove(temporary_);
}

void Client::SetDeadline(grpc::ClientContext* context) {
  // The daemon's own calls to the server end before, but for lists of many slow pages.
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
}

absl::Status Client::Finish(const grpc::Status& status) const {
  if (watch_->interrupted()) return absl::CancelledError("interrupted");
  const absl::Status plain = FromGrpc(status);
  if (plain.code() == absl::StatusCode::kUnavailable && daemon_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("no daemon answers at ", edge_, " (", plain.message(),
                     "); start sparkv-edge, or say where it is with --edge or SPARKV_EDGE"));
  }
  if (plain.code() == absl::StatusCode::kDeadlineExceeded)
    return absl::DeadlineExceededError(
        absl::StrCat("the daemon at ", edge_, " did not answer within 30 s"));
  return plain;
}

}  // namespace sparkv::cli
