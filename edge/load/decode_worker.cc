#include "edge/load/decode_worker.h"

#include <span>
#include <utility>

#include "common/base/clock.h"

namespace sparkv {

DecodeWorker::DecodeWorker(const BlockDecoder* decoder,
                           std::function<BlockShape(const BlockRef&)> shape, Done done)
    : decoder_(decoder),
      shape_(std::move(shape)),
      done_(std::move(done)),
      thread_([this] { Run(); }) {}

DecodeWorker::~DecodeWorker() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    queue_.clear();
  }
  thread_.join();
}

void DecodeWorker::Post(ReceivedBlock block) {
  absl::MutexLock lock(&mutex_);
  if (!stopping_) queue_.push_back(std::move(block));
}

void DecodeWorker::Run() {
  std::vector<uint16_t> k, v;
  while (true) {
    ReceivedBlock next;
    {
      absl::MutexLock lock(&mutex_);
      const auto wake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !queue_.empty();
      };
      mutex_.Await(absl::Condition(&wake));
      if (stopping_) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    const BlockShape shape = shape_(next.block);
    k.resize(shape.elements());
    v.resize(shape.elements());
    std::vector<std::span<const uint8_t>> planes;
    for (const std::string& plane : next.planes) {
      planes.emplace_back(reinterpret_cast<const uint8_t*>(plane.data()), plane.size());
    }
    const absl::Duration begin = RealClock().Now();
    const absl::Status status = decoder_->DecodeBlock(shape, planes, k.data(), v.data());
    done_(next.block, status, absl::ToDoubleSeconds(RealClock().Now() - begin), k.data(), v.data());
  }
}

}  // namespace sparkv
