#include "edge/edge_service.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/message_utf8.h"
#include "common/rpc/status_conv.h"
#include "edge/event_queue.h"

namespace sparkv {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(20);

}  // namespace

grpc::Status EdgeService::Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                                   grpc::ServerWriter<v1::GenerateResponse>* writer) {
  return Ended(*context, sessions_->Generate(
                             *request, {.write =
                                            [writer](const v1::GenerateResponse& response) {
                                              return writer->Write(response);
                                            },
                                        .alive = [this, context] { return Alive(*context); }}));
}

grpc::Status EdgeService::Load(grpc::ServerContext* context, const v1::LoadRequest* request,
                               grpc::ServerWriter<v1::LoadResponse>* writer) {
  const auto write = [writer](const v1::GenerateResponse& response) {
    v1::LoadResponse out;
    if (response.has_queued()) *out.mutable_queued() = response.queued();
    if (response.has_loading()) *out.mutable_loading() = response.loading();
    if (response.has_result()) *out.mutable_result() = response.result();
    return writer->Write(out);
  };
  return Ended(*context, sessions_->Load(*request, {.write = write, .alive = [this, context] {
                                                      return Alive(*context);
                                                    }}));
}

grpc::Status EdgeService::AddContext(grpc::ServerContext* context,
                                     const v1::AddContextRequest* request,
                                     grpc::ServerWriter<v1::AddContextResponse>* writer) {
  // Precompute blocks for minutes while its own messages may be far apart: a thread of its own lets
  // this one watch the client.
  EventQueue<v1::AddContextResponse> events;
  const CancelToken cancel;
  std::thread worker([&] {
    absl::StatusOr<v1::AddContextResponse> response =
        contexts_->Add(*request, cancel, [&events](const v1::AddContextResponse& step) {
          events.Replace(step, [](const v1::AddContextResponse&) { return true; });
        });
    if (response.ok()) events.Push(*std::move(response));
    events.Finish(response.status());
  });
  std::optional<absl::Status> finished;
  while (!finished) {
    std::optional<v1::AddContextResponse> event = events.Pop(kPoll, &finished);
    if (event) MakeUtf8Valid(&*event);
    if (event && event->has_done()) MarkLoaded(event->mutable_done());
    if (!Alive(*context) || (event && !writer->Write(*event))) cancel.Cancel();
  }
  worker.join();
  return Ended(*context, *finished);
}

grpc::Status EdgeService::ListContexts(grpc::ServerContext* context, const v1::ListContextsRequest*,
                                       v1::ListContextsResponse* response) {
  *response = contexts_->List([this, context] { return !Alive(*context); });
  MakeUtf8Valid(response);  // files' names
  for (v1::EdgeContext& one : *response->mutable_contexts()) MarkLoaded(&one);
  return grpc::Status::OK;
}

grpc::Status EdgeService::ShowContext(grpc::ServerContext* context,
                                      const v1::ShowContextRequest* request,
                                      v1::EdgeContext* response) {
  absl::StatusOr<v1::EdgeContext> shown =
      contexts_->Show(request->context(), [this, context] { return !Alive(*context); });
  if (!shown.ok()) return Ended(*context, shown.status());
  *response = *std::move(shown);
  MakeUtf8Valid(response);
  MarkLoaded(response);
  return grpc::Status::OK;
}

grpc::Status EdgeService::DeleteContext(grpc::ServerContext* context,
                                        const v1::DeleteContextRequest* request,
                                        v1::DeleteContextResponse* response) {
  std::vector<Digest> gone;
  absl::StatusOr<v1::DeleteContextResponse> deleted =
      contexts_->Delete(request->context(), &gone, [this, context] { return !Alive(*context); });
  for (const Digest& id : gone) sessions_->Forget(id);
  if (!deleted.ok()) return Ended(*context, deleted.status());
  *response = *std::move(deleted);
  MakeUtf8Valid(response);
  return grpc::Status::OK;
}

grpc::Status EdgeService::Status(grpc::ServerContext*, const v1::StatusRequest*,
                                 v1::StatusResponse* response) {
  sessions_->FillStatus(response);
  response->set_version(facts_.version);
  response->set_model(absl::StrCat(model_->config().name, " (", model_->config().architecture, ", ",
                                   model_->path(), ")"));
  response->set_model_fingerprint(DigestToHex(model_->fingerprint()));
  response->set_server(facts_.server);
  response->set_server_state(contexts_->ServerState());
  response->set_link(facts_.link);
  response->set_cpu_features(facts_.cpu_features);
  response->set_context_length(model_->config().context_length);
  for (const ProfileStore::State& state : contexts_->profiles().States()) {
    v1::ProfileState* profile = response->add_profiles();
    profile->set_digest(DigestToHex(state.digest));
    profile->set_codec(state.codec);
    profile->set_bytes(state.bytes);
    profile->set_bytes_done(state.bytes_done);
    profile->set_state(state.state);
    profile->set_fetch_ms(state.fetch_ms);
  }
  MakeUtf8Valid(response);  // the model's name and path, the server's words
  return grpc::Status::OK;
}

grpc::Status EdgeService::Ended(const grpc::ServerContext& context,
                                const absl::Status& status) const {
  if (status.code() == absl::StatusCode::kCancelled && stopping_ && !context.IsCancelled())
    return ToGrpc(absl::UnavailableError("the daemon is shutting down"));
  return ToGrpc(status);
}

void EdgeService::MarkLoaded(v1::EdgeContext* context) const {
  const absl::StatusOr<Digest> id = DigestFromHex(context->id());
  context->set_loaded(id.ok() && sessions_->Loaded(*id));
}

}  // namespace sparkv
