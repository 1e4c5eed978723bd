// The KvCache service over a store and a precomputer.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/thread_pool.h"
#include "server/codecs.h"
#include "server/fetch_reactor.h"
#include "server/precompute.h"
#include "server/prefiller.h"
#include "server/store.h"
#include "sparkv/v1/kv_cache.grpc.pb.h"

namespace sparkv {

struct KvServiceOptions {
  std::string version;                                   // GetServerInfo.version
  int max_fetch_streams = 64;                            // more: ResourceExhausted
  int max_precompute_calls = 64;                         // more: ResourceExhausted
  int io_threads = 2;                                    // that read items
  absl::Duration fetch_stall_limit = absl::Minutes(10);  // a stream on which nothing moves ends
  int max_profile_calls = 16;                            // more: ResourceExhausted
};

// Thread-safe. Unary calls and Precompute take a gRPC thread each; Fetch takes none while it waits.
class KvService : public v1::KvCache::WithCallbackMethod_Fetch<v1::KvCache::Service> {
 public:
  // All must outlive it.
  KvService(Store* store, Prefiller* prefiller, const ServerCodecs* codecs,
            Precomputer* precomputer, const KvServiceOptions& options);
  ~KvService() override;

  grpc::Status GetServerInfo(grpc::ServerContext* context, const v1::GetServerInfoRequest* request,
                             v1::ServerInfo* response) override;
  grpc::Status Precompute(grpc::ServerContext* context, const v1::PrecomputeRequest* request,
                          grpc::ServerWriter<v1::PrecomputeProgress>* writer) override;
  grpc::Status Lookup(grpc::ServerContext* context, const v1::LookupRequest* request,
                      v1::Manifest* response) override;
  grpc::Status List(grpc::ServerContext* context, const v1::ListRequest* request,
                    v1::ListResponse* response) override;
  grpc::Status Show(grpc::ServerContext* context, const v1::ShowRequest* request,
                    v1::ContextInfo* response) override;
  grpc::Status Delete(grpc::ServerContext* context, const v1::DeleteRequest* request,
                      v1::DeleteResponse* response) override;
  grpc::Status GetProfile(grpc::ServerContext* context, const v1::GetProfileRequest* request,
                          grpc::ServerWriter<v1::ProfileChunk>* writer) override;
  grpc::ServerBidiReactor<v1::FetchRequest, v1::FetchResponse>* Fetch(
      grpc::CallbackServerContext* context) override;

  // Refuses new streams and precomputes with Unavailable and ends the streams that wait. Those that
  // send go on.
  void BeginShutdown();
  int fetch_streams() const { return fetch_streams_.load(); }
  // Fetches, precomputes and profile transfers under way.
  int calls() const {
    return fetch_streams_.load() + precompute_calls_.load() + profile_calls_.load();
  }

 private:
  void Watch();
  absl::StatusOr<Precomputer::Request> ParsePrecompute(const v1::PrecomputeRequest& request,
                                                       const CancelledFn& cancelled) const;

  Store* const store_;
  Prefiller* const prefiller_;
  const ServerCodecs* const codecs_;
  Precomputer* const precomputer_;
  const KvServiceOptions options_;
  std::atomic<int> fetch_streams_ = 0;
  std::atomic<int> precompute_calls_ = 0;
  std::atomic<int> profile_calls_ = 0;
  std::atomic<bool> shutting_down_ = false;
  absl::Mutex mutex_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<FetchReactor*, std::weak_ptr<FetchReactor>> reactors_ ABSL_GUARDED_BY(mutex_);
  // GetProfile calls under way, and when a chunk of each moved last.
  std::map<grpc::ServerContext*, absl::Time> profile_moves_ ABSL_GUARDED_BY(mutex_);
  ThreadPool io_;
  std::thread watchdog_;
};

}  // namespace sparkv
