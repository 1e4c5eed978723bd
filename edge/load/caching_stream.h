// A stream that answers what is held already from memory, forwards the rest, and keeps what comes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "edge/load/held_planes.h"
#include "edge/load/ports.h"

namespace sparkv {

// The inner stream is started when something is ordered that is not held. bytes_received counts its
// bytes alone. When it breaks, what is held still comes first.
class CachingStream final : public ItemStream, private ItemSink {
 public:
  CachingStream(std::unique_ptr<ItemStream> inner, std::shared_ptr<HeldPlanes> held);
  ~CachingStream() override;

  void Start(ItemSink* sink) override;
  void Order(std::vector<ItemRef> items, bool replace) override;
  void Cancel(std::vector<ItemRef> items) override;
  void Stop() override;
  uint64_t bytes_received() const override { return inner_->bytes_received(); }

 private:
  void OnItem(const ItemRef& item, std::string bytes) override;
  void OnItemFailed(const ItemRef& item, const absl::Status& status) override;
  void OnBroken(const absl::Status& status) override;
  // The thread that delivers held items.
  void Deliver();

  const std::unique_ptr<ItemStream> inner_;
  const std::shared_ptr<HeldPlanes> held_;
  ItemSink* sink_ = nullptr;
  // Held during each event: they come one at a time. Taken before mutex_ or without it.
  absl::Mutex events_;
  absl::Mutex mutex_;
  std::deque<ItemRef> queue_ ABSL_GUARDED_BY(mutex_);  // held items to deliver
  bool inner_started_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> broken_ ABSL_GUARDED_BY(mutex_);  // to tell after the queue
  std::thread thread_;
};

}  // namespace sparkv
