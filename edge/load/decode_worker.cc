#include "edge/load/decode_worker.h"

#include <algorithm>
#include <utility>

namespace sparkv {

DecodeWorker::DecodeWorker(std::function<void(const ReceivedBlock&)> decode)
    : decode_(std::move(decode)), thread_([this] { Run(); }) {}

void DecodeWorker::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    queue_.clear();
  }
  if (thread_.joinable()) thread_.join();
}

void DecodeWorker::Post(ReceivedBlock block) {
  absl::MutexLock lock(&mutex_);
  if (!stopping_) queue_.push_back(std::move(block));
}

void DecodeWorker::Run() {
  while (true) {
    ReceivedBlock next;
    {
      absl::MutexLock lock(&mutex_);
      const auto wake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !queue_.empty();
      };
      mutex_.Await(absl::Condition(&wake));
      if (stopping_) return;
      const auto lowest = std::min_element(queue_.begin(), queue_.end(),
                                           [](const ReceivedBlock& a, const ReceivedBlock& b) {
                                             return a.block.layer < b.block.layer;
                                           });
      next = std::move(*lowest);
      queue_.erase(lowest);
    }
    decode_(next);
  }
}

}  // namespace sparkv
