// The edge's end of a Fetch: order out, checked items in.
#pragma once

#include <grpcpp/client_context.h>

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/kv/manifest.h"
#include "edge/load/ports.h"
#include "edge/net/server_client.h"
#include "sparkv/v1/kv_cache.grpc.pb.h"

namespace sparkv {

// Two threads: one writes requests, so that Order and Cancel never block on the network, one reads
// frames. Items are assembled from frames in order, and their length and CRC-32C are compared with
// the manifest's.
class Receiver final : public ItemStream {
 public:
  // The manifest must outlive it. `shown` names the server in messages.
  Receiver(std::shared_ptr<v1::KvCache::Stub> stub, const FetchOptions& options,
           const Manifest& manifest, std::string shown);
  ~Receiver() override;

  void Start(ItemSink* sink) override;
  void Order(std::vector<ItemRef> items, bool replace) override;
  void Cancel(std::vector<ItemRef> items) override;
  void Stop() override;
  uint64_t bytes_received() const override { return bytes_.load(std::memory_order_relaxed); }

 private:
  void Post(v1::FetchRequest request);
  void WriteRequests();
  void ReadResponses();
  // DataLoss for a frame that does not continue its item or does not fit the manifest.
  absl::Status TakeFrame(const v1::FetchResponse::Frame& frame);

  const std::shared_ptr<v1::KvCache::Stub> stub_;
  const FetchOptions options_;
  const Manifest& manifest_;
  const std::string shown_;
  ItemSink* sink_ = nullptr;

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::FetchRequest, v1::FetchResponse>> call_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<bool> stopped_{false};

  absl::Mutex mutex_;
  std::deque<v1::FetchRequest> requests_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;

  // The item that frames are building; the reader's alone.
  ItemRef current_;
  std::string assembled_;
  uint64_t unacknowledged_ = 0;

  std::thread writer_;
  std::thread reader_;
};

}  // namespace sparkv
