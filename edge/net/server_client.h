// The edge's calls to the cloud server, with deadlines and clear errors.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/cancel.h"
#include "common/base/sha256.h"
#include "common/kv/manifest.h"
#include "common/rpc/tls.h"
#include "edge/load/ports.h"
#include "sparkv/v1/kv_cache.grpc.pb.h"

namespace sparkv {

struct FetchOptions {
  Digest context_id{};
  Digest model_fingerprint{};
  Digest codec_digest{};
  uint64_t window_bytes = 0;  // 0: the server's default
};

// Thread-safe. Every call's errors are those of kv_cache.proto, Unavailable "server ADDRESS: …"
// when it cannot be reached.
class ServerClient {
 public:
  // Never blocks; the connection is made on first use. `target` host:port; `shown` is the name in
  // messages (empty: target).
  static absl::StatusOr<std::unique_ptr<ServerClient>> Create(const std::string& target,
                                                              const ClientTls& tls,
                                                              const std::string& shown = "");

  absl::StatusOr<v1::ServerInfo> Info(absl::Duration deadline = absl::Seconds(5));
  // `cancelled` is asked every 20 ms on a thread of the call's own.
  absl::StatusOr<Manifest> Lookup(const Digest& context_id,
                                  absl::Duration deadline = absl::Seconds(10),
                                  std::string* name = nullptr, CancelledFn cancelled = nullptr);
  absl::StatusOr<v1::ContextInfo> Show(const Digest& context_id, CancelledFn cancelled = nullptr);
  // All pages.
  absl::StatusOr<std::vector<v1::ContextInfo>> List(const CancelledFn& cancelled = nullptr);
  absl::StatusOr<uint64_t> Delete(const Digest& context_id,
                                  absl::Duration deadline = absl::Seconds(10));
  // Streams progress until done. Cancelled within 200 ms of the token.
  absl::StatusOr<v1::ContextInfo> Precompute(
      const v1::PrecomputeRequest& request,
      const std::function<void(const v1::PrecomputeProgress&)>& progress,
      const CancelToken& cancel);
  // The bytes of a model profile, not yet checked against the digest. progress(bytes so far, of
  // the whole); `cancelled` as of Lookup. DataLoss for chunks that break the contract,
  // FailedPrecondition for a profile of more than max_bytes (nothing of that size is allocated),
  // Unavailable also when nothing came for 30 s.
  absl::StatusOr<std::string> GetProfile(const Digest& digest, uint64_t max_bytes,
                                         const std::function<void(uint64_t, uint64_t)>& progress,
                                         CancelledFn cancelled);
  // A fetch that checks every item against the manifest, which must outlive it.
  std::unique_ptr<ItemStream> Fetch(const FetchOptions& options, const Manifest& manifest);

  // Ends every call but fetches now, and later ones at once, with Cancelled: the daemon stops.
  void CancelAll();

  const std::string& target() const { return shown_; }

 private:
  class Call;
  ServerClient(std::shared_ptr<grpc::Channel> channel, std::string shown);
  absl::Status Named(const grpc::Status& status) const;

  std::shared_ptr<v1::KvCache::Stub> stub_;
  std::string shown_;
  absl::Mutex mutex_;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);  // in flight
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sparkv
