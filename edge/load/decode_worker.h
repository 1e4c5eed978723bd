// The thread that turns received planes into blocks.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "edge/load/plan.h"

namespace sparkv {

struct ReceivedBlock {
  BlockRef block;
  std::vector<std::string> planes;
};

// Decodes blocks one after the other, the lowest layer first. Thread-safe.
class DecodeWorker {
 public:
  // `decode` is called on the worker.
  explicit DecodeWorker(std::function<void(const ReceivedBlock&)> decode);
  ~DecodeWorker() { Stop(); }
  DecodeWorker(const DecodeWorker&) = delete;
  DecodeWorker& operator=(const DecodeWorker&) = delete;

  void Post(ReceivedBlock block);
  // Drops what is queued, and what is posted later, and joins; not on the worker. Idempotent.
  void Stop();

 private:
  void Run();
  const std::function<void(const ReceivedBlock&)> decode_;
  absl::Mutex mutex_;
  std::deque<ReceivedBlock> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sparkv
