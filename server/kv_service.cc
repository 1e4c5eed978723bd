#include "server/kv_service.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/codec/codec.h"
#include "common/rpc/message_utf8.h"
#include "common/rpc/status_conv.h"
#include "common/rpc/wire.h"

namespace sparkv {
namespace {

std::string BytesOf(const Digest& digest) {
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

v1::ContextInfo ToProto(const ContextRecord& record) {
  v1::ContextInfo info;
  info.set_context_id(BytesOf(record.id));
  info.set_name(record.name);
  info.set_tokens(record.token_count);
  info.set_codec(record.codec);
  info.set_stored_bytes(record.stored_bytes);
  info.set_created_unix_ms(record.created_unix_ms);
  info.set_last_used_unix_ms(record.last_used_unix_ms);
  info.set_model_fingerprint(BytesOf(record.model_fingerprint));
  info.mutable_level_bytes()->Add(record.level_bytes.begin(), record.level_bytes.end());
  return info;
}

// A call that ends at once.
class RefusedFetch : public grpc::ServerBidiReactor<v1::FetchRequest, v1::FetchResponse> {
 public:
  explicit RefusedFetch(const absl::Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

KvService::KvService(Store* store, Prefiller* prefiller, const ServerCodecs* codecs,
                     Precomputer* precomputer, const KvServiceOptions& options)
    : store_(store),
      prefiller_(prefiller),
      codecs_(codecs),
      precomputer_(precomputer),
      options_(options),
      io_(options.io_threads),
      watchdog_([this] { Watch(); }) {}

KvService::~KvService() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  watchdog_.join();
}

void KvService::Watch() {
  for (;;) {
    std::vector<std::shared_ptr<FetchReactor>> reactors;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&ending_), absl::Seconds(1));
      if (ending_) return;
      for (const auto& [raw, weak] : reactors_) {
        if (std::shared_ptr<FetchReactor> reactor = weak.lock())
          reactors.push_back(std::move(reactor));
      }
      const absl::Time limit = absl::Now() - options_.fetch_stall_limit;
      for (const auto& [context, moved] : profile_moves_) {
        if (moved < limit) context->TryCancel();
      }
    }
    for (const auto& reactor : reactors) reactor->EndIfStalled(options_.fetch_stall_limit);
  }
}

void KvService::BeginShutdown() {
  shutting_down_ = true;
  precomputer_->Stop();
  std::vector<std::shared_ptr<FetchReactor>> reactors;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [raw, weak] : reactors_) {
      if (std::shared_ptr<FetchReactor> reactor = weak.lock())
        reactors.push_back(std::move(reactor));
    }
  }
  for (const auto& reactor : reactors) reactor->EndIfIdle();
}

grpc::Status KvService::GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                                      v1::ServerInfo* response) {
  response->set_version(options_.version);
  response->set_model_name(prefiller_->model_name());
  response->set_model_fingerprint(BytesOf(prefiller_->fingerprint()));
  for (const std::string& name : codecs_->names()) response->add_codecs(name);
  for (const ServerCodec* codec : codecs_->WithProfile()) {
    v1::ServerProfile* profile = response->add_profiles();
    profile->set_codec(std::string(codec->info().name));
    profile->set_digest(BytesOf(codec->profile->digest()));
    profile->set_bytes(codec->profile->bytes().size());
  }
  *response->mutable_geometry() = ToProto(prefiller_->geometry());
  const StoreUsage usage = store_->Usage();
  response->set_store_bytes(usage.used_bytes);
  response->set_store_budget_bytes(usage.budget_bytes);
  MakeUtf8Valid(response);  // the model's name
  return grpc::Status::OK;
}

absl::StatusOr<Precomputer::Request> KvService::ParsePrecompute(
    const v1::PrecomputeRequest& request, const CancelledFn& cancelled) const {
  Precomputer::Request out;
  if (request.tokens().empty() == request.text().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("exactly one of tokens and text must be given; got ",
                     request.tokens().empty() ? "none" : "both"));
  }
  if (request.name().size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("name: got ", request.name().size(), " bytes, allowed: ", kMaxNameBytes));
  }
  RETURN_IF_ERROR(CheckPrintable(request.name()));
  if (!request.model_fingerprint().empty()) {
    ASSIGN_OR_RETURN(const Digest model,
                     DigestField(request.model_fingerprint(), "model_fingerprint"));
    if (model != prefiller_->fingerprint()) {
      return absl::FailedPreconditionError(
          absl::StrCat("model_fingerprint: this server has ", prefiller_->model_name(), " (",
                       DigestToHex(prefiller_->fingerprint()), "), got ", DigestToHex(model)));
    }
  }
  out.name = request.name();
  out.codec = request.codec().empty() ? codecs_->names().front() : request.codec();
  RETURN_IF_ERROR(codecs_->Find(out.codec).status());
  if (!request.tokens().empty()) {
    out.tokens.assign(request.tokens().begin(), request.tokens().end());
    return out;
  }
  if (request.text().size() > kMaxRequestTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat("text: got ", request.text().size(),
                                                   " bytes, allowed: ", kMaxRequestTextBytes));
  }
  if (request.system().size() > kMaxSystemBytes) {
    return absl::InvalidArgumentError(absl::StrCat("system: got ", request.system().size(),
                                                   " bytes, allowed: ", kMaxSystemBytes));
  }
  ASSIGN_OR_RETURN(
      out.tokens, prefiller_->Tokenize(request.text(), request.raw(), request.system(), cancelled));
  return out;
}

grpc::Status KvService::Precompute(grpc::ServerContext* context,
                                   const v1::PrecomputeRequest* request,
                                   grpc::ServerWriter<v1::PrecomputeProgress>* writer) {
  if (shutting_down_) return ToGrpc(absl::UnavailableError("the server is shutting down"));
  const absl::Cleanup leave = [this] { --precompute_calls_; };
  if (++precompute_calls_ > options_.max_precompute_calls) {
    return ToGrpc(absl::ResourceExhaustedError(
        absl::StrCat("more than ", options_.max_precompute_calls,
                     " precompute calls at once (max_precompute_calls)")));
  }
  const absl::StatusOr<Precomputer::Request> parsed =
      ParsePrecompute(*request, [&] { return shutting_down_ || context->IsCancelled(); });
  if (!parsed.ok()) {
    if (shutting_down_ && absl::IsCancelled(parsed.status())) {
      return ToGrpc(absl::UnavailableError("the server is shutting down"));
    }
    return ToGrpc(parsed.status());
  }
  PrecomputeProgressInfo last;
  const auto fill = [](const PrecomputeProgressInfo& info, v1::PrecomputeProgress* out) {
    out->set_tokens_done(info.tokens_done);
    out->set_tokens_total(info.tokens_total);
    out->set_tokens_reused(info.tokens_reused);
    out->set_seconds_left(info.seconds_left);
  };
  const absl::StatusOr<ContextRecord> record =
      precomputer_->Run(*parsed, [&](const PrecomputeProgressInfo& info) {
        if (context->IsCancelled()) return false;
        if (info == last) return true;
        last = info;
        v1::PrecomputeProgress message;
        fill(info, &message);
        return writer->Write(message);
      });
  if (!record.ok()) return ToGrpc(record.status());
  v1::PrecomputeProgress message;
  last.tokens_done = last.tokens_total = record->token_count;
  last.seconds_left = 0;
  // A run that found everything stored may have ended before its first report.
  fill(last, &message);
  *message.mutable_done() = ToProto(*record);
  writer->Write(message);
  return grpc::Status::OK;
}

grpc::Status KvService::Lookup(grpc::ServerContext*, const v1::LookupRequest* request,
                               v1::Manifest* response) {
  const absl::StatusOr<Digest> id = DigestField(request->context_id(), "context_id");
  if (!id.ok()) return ToGrpc(id.status());
  const absl::StatusOr<std::unique_ptr<ContextReader>> reader = store_->OpenContext(*id);
  if (!reader.ok()) return ToGrpc(reader.status());
  *response = sparkv::ToProto((*reader)->manifest(), (*reader)->record().name);
  return grpc::Status::OK;
}

grpc::Status KvService::List(grpc::ServerContext*, const v1::ListRequest* request,
                             v1::ListResponse* response) {
  if (request->limit() > kMaxListLimit) {
    return ToGrpc(absl::InvalidArgumentError(
        absl::StrCat("limit: got ", request->limit(), ", allowed: 0..", kMaxListLimit)));
  }
  const absl::StatusOr<ContextPage> page = store_->ListContexts(
      request->limit() == 0 ? kMaxListLimit : request->limit(), request->page_token());
  if (!page.ok()) return ToGrpc(page.status());
  for (const ContextRecord& record : page->contexts) *response->add_contexts() = ToProto(record);
  response->set_next_page_token(page->next_page_token);
  return grpc::Status::OK;
}

grpc::Status KvService::Show(grpc::ServerContext*, const v1::ShowRequest* request,
                             v1::ContextInfo* response) {
  const absl::StatusOr<Digest> id = DigestField(request->context_id(), "context_id");
  if (!id.ok()) return ToGrpc(id.status());
  const absl::StatusOr<ContextRecord> record = store_->GetContext(*id);
  if (!record.ok()) return ToGrpc(record.status());
  *response = ToProto(*record);
  return grpc::Status::OK;
}

grpc::Status KvService::Delete(grpc::ServerContext*, const v1::DeleteRequest* request,
                               v1::DeleteResponse* response) {
  const absl::StatusOr<Digest> id = DigestField(request->context_id(), "context_id");
  if (!id.ok()) return ToGrpc(id.status());
  const absl::StatusOr<uint64_t> freed = store_->DeleteContext(*id);
  if (!freed.ok()) return ToGrpc(freed.status());
  response->set_freed_bytes(*freed);
  return grpc::Status::OK;
}

grpc::Status KvService::GetProfile(grpc::ServerContext* context,
                                   const v1::GetProfileRequest* request,
                                   grpc::ServerWriter<v1::ProfileChunk>* writer) {
  if (shutting_down_) return ToGrpc(absl::UnavailableError("the server is shutting down"));
  const absl::StatusOr<Digest> digest = DigestField(request->digest(), "digest");
  if (!digest.ok()) return ToGrpc(digest.status());
  const auto profile = codecs_->FindProfile(*digest);
  if (!profile.ok()) return ToGrpc(profile.status());
  const auto moved = [&] {
    absl::MutexLock lock(&mutex_);
    profile_moves_[context] = absl::Now();
  };
  const absl::Cleanup leave = [&] {
    absl::MutexLock lock(&mutex_);
    profile_moves_.erase(context);
    --profile_calls_;
  };
  if (++profile_calls_ > options_.max_profile_calls) {
    return ToGrpc(absl::ResourceExhaustedError(
        absl::StrCat("more than ", options_.max_profile_calls, " profiles being sent at once")));
  }
  const std::string_view bytes = (*profile)->bytes();
  for (size_t at = 0; at < bytes.size(); at += kMaxProfileChunkBytes) {
    moved();
    v1::ProfileChunk chunk;
    chunk.set_total_bytes(bytes.size());
    chunk.set_data(std::string(bytes.substr(at, kMaxProfileChunkBytes)));
    if (!writer->Write(chunk)) return ToGrpc(absl::CancelledError("the client has gone"));
  }
  return grpc::Status::OK;
}

grpc::ServerBidiReactor<v1::FetchRequest, v1::FetchResponse>* KvService::Fetch(
    grpc::CallbackServerContext* context) {
  if (shutting_down_)
    return new RefusedFetch(absl::UnavailableError("the server is shutting down"));
  if (++fetch_streams_ > options_.max_fetch_streams) {
    --fetch_streams_;
    return new RefusedFetch(absl::ResourceExhaustedError(absl::StrCat(
        "more than ", options_.max_fetch_streams, " fetch streams at once (max_fetch_streams)")));
  }
  const std::shared_ptr<FetchReactor> reactor =
      FetchReactor::Start(context, store_, &io_, [this](FetchReactor* done) {
        absl::MutexLock lock(&mutex_);
        reactors_.erase(done);
        --fetch_streams_;
      });
  absl::MutexLock lock(&mutex_);
  reactors_[reactor.get()] = reactor;
  return reactor.get();
}

}  // namespace sparkv
