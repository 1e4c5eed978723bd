#include "edge/net/server_client.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/rpc/status_conv.h"
#include "common/rpc/wire.h"
#include "edge/net/receiver.h"

namespace sparkv {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(20);  // between two looks at `cancelled`
constexpr absl::Duration kShowDeadline = absl::Seconds(5);
constexpr absl::Duration kListDeadline = absl::Seconds(10);  // a page
constexpr absl::Duration kProfileStall = absl::Seconds(30);

std::string Bytes(const Digest& digest) { return std::string(AsStringView(digest)); }

}  // namespace

// One blocking call's context: ends at its deadline, with CancelAll, and when `cancelled` says so.
class ServerClient::Call {
 public:
  Call(ServerClient* client, absl::Duration deadline, CancelledFn cancelled = nullptr)
      : client_(client) {
    if (deadline != absl::InfiniteDuration()) {
      context_.set_deadline(std::chrono::system_clock::now() +
                            absl::ToChronoMilliseconds(deadline));
    }
    {
      absl::MutexLock lock(&client_->mutex_);
      client_->calls_.insert(&context_);
      if (client_->closed_) context_.TryCancel();
    }
    if (cancelled == nullptr) return;
    watcher_ = std::thread([this, cancelled = std::move(cancelled)] {
      do {
        if (cancelled()) return context_.TryCancel();
      } while (!ended_.WaitForNotificationWithTimeout(kPoll));
    });
  }
  ~Call() {
    ended_.Notify();
    if (watcher_.joinable()) watcher_.join();
    absl::MutexLock lock(&client_->mutex_);
    client_->calls_.erase(&context_);
  }
  grpc::ClientContext* context() { return &context_; }

 private:
  ServerClient* const client_;
  grpc::ClientContext context_;
  absl::Notification ended_;
  std::thread watcher_;
};

void ServerClient::CancelAll() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  for (grpc::ClientContext* context : calls_) context->TryCancel();
}

absl::StatusOr<std::unique_ptr<ServerClient>> ServerClient::Create(const std::string& target,
                                                                   const ClientTls& tls,
                                                                   const std::string& shown) {
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, MakeChannel(target, tls));
  return std::unique_ptr<ServerClient>(
      new ServerClient(std::move(channel), shown.empty() ? target : shown));
}

ServerClient::ServerClient(std::shared_ptr<grpc::Channel> channel, std::string shown)
    : stub_(v1::KvCache::NewStub(std::move(channel))), shown_(std::move(shown)) {}

absl::Status ServerClient::Named(const grpc::Status& status) const {
  const absl::Status plain = FromGrpc(status);
  if (plain.ok()) return plain;
  // A deadline means that the server cannot be reached now, as far as the caller is concerned.
  const absl::StatusCode code = plain.code() == absl::StatusCode::kDeadlineExceeded
                                    ? absl::StatusCode::kUnavailable
                                    : plain.code();
  return absl::Status(code, absl::StrCat("server ", shown_, ": ", plain.message()));
}

absl::StatusOr<v1::ServerInfo> ServerClient::Info(absl::Duration deadline) {
  Call call(this, deadline);
  v1::ServerInfo info;
  RETURN_IF_ERROR(Named(stub_->GetServerInfo(call.context(), {}, &info)));
  return info;
}

absl::StatusOr<Manifest> ServerClient::Lookup(const Digest& context_id, absl::Duration deadline,
                                              std::string* name, CancelledFn cancelled) {
  Call call(this, deadline, std::move(cancelled));
  v1::LookupRequest request;
  request.set_context_id(Bytes(context_id));
  v1::Manifest manifest;
  RETURN_IF_ERROR(Named(stub_->Lookup(call.context(), request, &manifest)));
  absl::StatusOr<Manifest> checked = FromProto(manifest);
  if (!checked.ok()) {
    return absl::DataLossError(
        absl::StrCat("server ", shown_, " sent a bad manifest: ", checked.status().message()));
  }
  if (checked->context_id != context_id) {
    return absl::DataLossError(
        absl::StrCat("server ", shown_, " sent the manifest of another context"));
  }
  if (name != nullptr) *name = manifest.name();
  return checked;
}

absl::StatusOr<v1::ContextInfo> ServerClient::Show(const Digest& context_id,
                                                   CancelledFn cancelled) {
  Call call(this, kShowDeadline, std::move(cancelled));
  v1::ShowRequest request;
  request.set_context_id(Bytes(context_id));
  v1::ContextInfo info;
  RETURN_IF_ERROR(Named(stub_->Show(call.context(), request, &info)));
  return info;
}

absl::StatusOr<std::vector<v1::ContextInfo>> ServerClient::List(const CancelledFn& cancelled) {
  constexpr size_t kMaxContexts = 1000000;
  std::vector<v1::ContextInfo> all;
  std::string page;
  do {
    Call call(this, kListDeadline, cancelled);
    v1::ListRequest request;
    request.set_page_token(page);
    v1::ListResponse response;
    RETURN_IF_ERROR(Named(stub_->List(call.context(), request, &response)));
    all.insert(all.end(), response.contexts().begin(), response.contexts().end());
    if (response.contexts().empty()) break;
    page = response.next_page_token();
  } while (!page.empty() && all.size() < kMaxContexts);
  return all;
}

absl::StatusOr<uint64_t> ServerClient::Delete(const Digest& context_id, absl::Duration deadline) {
  Call call(this, deadline);
  v1::DeleteRequest request;
  request.set_context_id(Bytes(context_id));
  v1::DeleteResponse response;
  RETURN_IF_ERROR(Named(stub_->Delete(call.context(), request, &response)));
  return response.freed_bytes();
}

absl::StatusOr<v1::ContextInfo> ServerClient::Precompute(
    const v1::PrecomputeRequest& request,
    const std::function<void(const v1::PrecomputeProgress&)>& progress, const CancelToken& cancel) {
  Call call(this, absl::InfiniteDuration(), [&cancel] { return cancel.cancelled(); });
  auto reader = stub_->Precompute(call.context(), request);
  v1::PrecomputeProgress message;
  v1::ContextInfo done;
  bool have = false;
  while (reader->Read(&message)) {
    if (progress) progress(message);
    if (message.has_done()) {
      done = message.done();
      have = true;
    }
  }
  RETURN_IF_ERROR(Named(reader->Finish()));
  if (!have)
    return absl::UnavailableError(
        absl::StrCat("server ", shown_, " ended the precompute without a result"));
  return done;
}

absl::StatusOr<std::string> ServerClient::GetProfile(
    const Digest& digest, uint64_t max_bytes,
    const std::function<void(uint64_t, uint64_t)>& progress, CancelledFn cancelled) {
  std::atomic<int64_t> moved = absl::ToInt64Milliseconds(RealClock().Now());
  std::atomic<bool> stalled = false;
  Call call(this, absl::InfiniteDuration(), [&moved, &stalled, cancelled = std::move(cancelled)] {
    const int64_t idle = absl::ToInt64Milliseconds(RealClock().Now()) - moved.load();
    if (idle > absl::ToInt64Milliseconds(kProfileStall)) stalled = true;
    return stalled || (cancelled != nullptr && cancelled());
  });
  v1::GetProfileRequest request;
  request.set_digest(Bytes(digest));
  auto reader = stub_->GetProfile(call.context(), request);
  v1::ProfileChunk chunk;
  std::string bytes;
  uint64_t total = 0;
  absl::Status bad;
  while (reader->Read(&chunk)) {
    if (!bad.ok()) continue;  // until the call has ended
    moved = absl::ToInt64Milliseconds(RealClock().Now());
    if (total == 0) total = chunk.total_bytes();
    if (total > max_bytes) {
      bad =
          absl::FailedPreconditionError(absl::StrCat("server ", shown_, ": its profile has ", total,
                                                     " bytes; at most ", max_bytes, " are taken"));
    } else if (total == 0 || chunk.total_bytes() != total || chunk.data().empty() ||
               chunk.data().size() > kMaxProfileChunkBytes ||
               chunk.data().size() > total - bytes.size()) {
      bad = absl::DataLossError(absl::StrCat(
          "server ", shown_, " sent a bad part of a profile: ", chunk.data().size(),
          " bytes after ", bytes.size(), ", of ", chunk.total_bytes(), " and before of ", total));
    }
    if (!bad.ok()) {
      call.context()->TryCancel();
      continue;
    }
    bytes += chunk.data();
    if (progress) progress(bytes.size(), total);
  }
  const absl::Status ended = Named(reader->Finish());
  RETURN_IF_ERROR(bad);
  if (stalled) {
    return absl::UnavailableError(absl::StrCat("server ", shown_,
                                               ": nothing of the profile came for ",
                                               absl::FormatDuration(kProfileStall)));
  }
  RETURN_IF_ERROR(ended);
  if (total == 0 || bytes.size() != total) {
    return absl::DataLossError(absl::StrCat("server ", shown_, " sent ", bytes.size(), " of ",
                                            total, " bytes of a profile"));
  }
  return bytes;
}

std::unique_ptr<ItemStream> ServerClient::Fetch(const FetchOptions& options,
                                                const Manifest& manifest) {
  return std::make_unique<Receiver>(stub_, options, manifest, shown_);
}

}  // namespace sparkv
