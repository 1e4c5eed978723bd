#include "edge/load/caching_stream.h"

#include <algorithm>
#include <utility>

namespace sparkv {

CachingStream::CachingStream(std::unique_ptr<ItemStream> inner, std::shared_ptr<HeldPlanes> held)
    : inner_(std::move(inner)), held_(std::move(held)) {}

CachingStream::~CachingStream() { Stop(); }

void CachingStream::Start(ItemSink* sink) {
  sink_ = sink;
  thread_ = std::thread([this] { Deliver(); });
}

void CachingStream::Order(std::vector<ItemRef> items, bool replace) {
  std::vector<ItemRef> missing;
  absl::MutexLock lock(&mutex_);
  if (stopping_) return;
  if (replace) queue_.clear();
  for (const ItemRef& item : items) {
    if (held_->Contains(item)) {
      queue_.push_back(item);
    } else {
      missing.push_back(item);
    }
  }
  if (missing.empty() && !(replace && inner_started_)) return;
  if (!inner_started_) {
    inner_started_ = true;
    inner_->Start(this);
  }
  inner_->Order(std::move(missing), replace);
}

void CachingStream::Cancel(std::vector<ItemRef> items) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(queue_, [&](const ItemRef& item) {
    return std::find(items.begin(), items.end(), item) != items.end();
  });
  if (inner_started_) inner_->Cancel(std::move(items));
}

void CachingStream::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  inner_->Stop();
  if (thread_.joinable()) thread_.join();
}

void CachingStream::OnItem(const ItemRef& item, std::string bytes) {
  held_->Put(item, bytes);
  absl::MutexLock lock(&events_);
  sink_->OnItem(item, std::move(bytes));
}

void CachingStream::OnItemFailed(const ItemRef& item, const absl::Status& status) {
  absl::MutexLock lock(&events_);
  sink_->OnItemFailed(item, status);
}

void CachingStream::OnBroken(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  broken_ = status;
}

void CachingStream::Deliver() {
  while (true) {
    std::optional<ItemRef> item;
    absl::Status broken;
    {
      absl::MutexLock lock(&mutex_);
      const auto wake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !queue_.empty() || broken_.has_value();
      };
      mutex_.Await(absl::Condition(&wake));
      if (stopping_) return;
      if (!queue_.empty()) {
        item = queue_.front();
        queue_.pop_front();
      } else {
        broken = *broken_;
      }
    }
    absl::MutexLock lock(&events_);
    if (!item.has_value()) return sink_->OnBroken(broken);
    std::optional<std::string> bytes = held_->Get(*item);
    if (bytes.has_value()) sink_->OnItem(*item, *std::move(bytes));
  }
}

}  // namespace sparkv
