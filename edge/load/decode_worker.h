// The thread that turns received planes into blocks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/codec/codec.h"
#include "edge/load/plan.h"

namespace sparkv {

struct ReceivedBlock {
  BlockRef block;
  std::vector<std::string> planes;
};

// Decodes blocks one after the other and hands f16 bits over. Thread-safe.
class DecodeWorker {
 public:
  // Called on the worker: k, v are [kv_heads][tokens][head_dim] and valid during the call; status
  // not ok: nothing was decoded. `seconds` is the codec's time.
  using Done = std::function<void(const BlockRef&, const absl::Status&, double seconds,
                                  const uint16_t* k, const uint16_t* v)>;
  DecodeWorker(const BlockDecoder* decoder, std::function<BlockShape(const BlockRef&)> shape,
               Done done);
  // Drops what is queued and joins.
  ~DecodeWorker();
  DecodeWorker(const DecodeWorker&) = delete;
  DecodeWorker& operator=(const DecodeWorker&) = delete;

  void Post(ReceivedBlock block);

 private:
  void Run();
  const BlockDecoder* decoder_;
  const std::function<BlockShape(const BlockRef&)> shape_;
  const Done done_;
  absl::Mutex mutex_;
  std::deque<ReceivedBlock> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sparkv
