// A Fetch call: glue between gRPC's callback API and FetchStream.
//
// Writing has one owner at a time (`busy_`): a task on the I/O pool or a write in flight. Only the
// owner starts writes and finishes the call, so Finish comes exactly once and never beside a write.
// Nothing is called into gRPC with the lock held, and no reaction reads the disk.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/thread_pool.h"
#include "server/fetch_stream.h"
#include "server/store.h"
#include "sparkv/v1/kv_cache.pb.h"

namespace sparkv {

class FetchReactor : public grpc::ServerBidiReactor<v1::FetchRequest, v1::FetchResponse> {
 public:
  // `store` and `io` must outlive it. `on_done` runs last, when gRPC has let go of the call.
  static std::shared_ptr<FetchReactor> Start(grpc::CallbackServerContext* context, Store* store,
                                             ThreadPool* io,
                                             std::function<void(FetchReactor*)> on_done);

  // Ends a stream on which nothing has moved for `limit`: Unavailable, or, with a write stuck, by
  // cancelling the call. Thread-safe.
  void EndIfStalled(absl::Duration limit);
  // Ends the stream with Unavailable unless it is sending just now; then it ends when it has sent
  // what is ordered.
  void EndIfIdle();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  FetchReactor(grpc::CallbackServerContext* context, Store* store, ThreadPool* io,
               std::function<void(FetchReactor*)> on_done);
  absl::Status HandleOpen(const v1::FetchRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Handle(const v1::FetchRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Open(const Digest& id, const Digest& model, const Digest& codec, uint64_t window);
  // Remembers why the call ends (the first reason counts) and wakes the writing side.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void Pump() ABSL_LOCKS_EXCLUDED(mutex_);
  // By the owner only: goes on until a write is in flight, the pool has the work, or there is
  // nothing to do.
  void Drive(bool on_pool) ABSL_LOCKS_EXCLUDED(mutex_);

  // Null once gRPC is done with the call. Recursive: cancelling may run OnDone on the same thread.
  std::recursive_mutex context_mutex_;
  grpc::CallbackServerContext* context_;
  Store* const store_;
  ThreadPool* const io_;
  const std::function<void(FetchReactor*)> on_done_;
  std::shared_ptr<FetchReactor> self_;  // until OnDone

  v1::FetchRequest request_;    // of the read in flight
  v1::FetchResponse response_;  // of the write in flight; the owner's
  absl::Mutex mutex_;
  bool open_seen_ ABSL_GUARDED_BY(mutex_) = false;
  bool send_opened_ ABSL_GUARDED_BY(mutex_) = false;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_activity_ ABSL_GUARDED_BY(mutex_);
  std::optional<FetchStream> stream_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ContextReader> reader_;  // the owner's, set before stream_
};

}  // namespace sparkv
