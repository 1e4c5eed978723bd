#include "server/fetch_stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace sparkv {

FetchStream::FetchStream(const FetchShape& shape, uint64_t window_bytes, const FetchLimits& limits)
    : shape_(shape), limits_(limits), window_(window_bytes) {}

absl::Status FetchStream::Check(std::span<const ItemKey> items) const {
  if (items.size() > limits_.max_message_items) {
    return absl::InvalidArgumentError(absl::StrCat(
        "items: got ", items.size(), " in one message, allowed: ", limits_.max_message_items));
  }
  for (const ItemKey& item : items) {
    if (item.column >= shape_.columns || item.layer >= shape_.layers ||
        item.plane >= shape_.planes) {
      return absl::InvalidArgumentError(
          absl::StrCat("item (column ", item.column, ", layer ", item.layer, ", plane ", item.plane,
                       ") is outside the manifest's ", shape_.columns, " columns x ", shape_.layers,
                       " layers x ", shape_.planes, " planes"));
    }
  }
  return absl::OkStatus();
}

absl::Status FetchStream::Order(std::span<const ItemKey> items, bool replace) {
  RETURN_IF_ERROR(Check(items));
  // Counts repeated items too: an upper bound is enough for a limit.
  if ((replace ? 0 : waiting_.size()) + items.size() > limits_.max_waiting_items) {
    return absl::ResourceExhaustedError(
        absl::StrCat("order: ", items.size(), " more than the ", waiting_.size(),
                     " items that wait; allowed: ", limits_.max_waiting_items));
  }
  if (replace) {
    waiting_.clear();
    queue_.clear();
  }
  for (const ItemKey& item : items) {
    if (state_ != State::kIdle && !current_cancelled_ && item == current_) continue;
    if (waiting_.emplace(item, next_number_).second) queue_.emplace_back(item, next_number_++);
  }
  Compact();
  return absl::OkStatus();
}

absl::Status FetchStream::Cancel(std::span<const ItemKey> items) {
  RETURN_IF_ERROR(Check(items));
  if (cancelled_.size() + items.size() > limits_.max_waiting_items) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cancel: ", cancelled_.size(),
                     " answers are still unread; allowed: ", limits_.max_waiting_items));
  }
  for (const ItemKey& item : items) {
    const bool waited = waiting_.erase(item) != 0;
    if (state_ != State::kIdle && !current_cancelled_ && item == current_) {
      current_cancelled_ = true;  // answered by Next, after any frame that is out
    } else if (waited) {
      cancelled_.push_back(item);
    }
  }
  Compact();
  return absl::OkStatus();
}

void FetchStream::Compact() {
  if (queue_.size() < 2 * waiting_.size() + 1024) return;
  std::deque<std::pair<ItemKey, uint64_t>> live;
  for (const auto& entry : queue_) {
    const auto it = waiting_.find(entry.first);
    if (it != waiting_.end() && it->second == entry.second) live.push_back(entry);
  }
  queue_ = std::move(live);
}

absl::Status FetchStream::Window(uint64_t consumed_bytes, uint64_t window_bytes) {
  if (consumed_bytes > outstanding_) {
    return absl::InvalidArgumentError(absl::StrCat("consumed_bytes: got ", consumed_bytes,
                                                   ", but only ", outstanding_,
                                                   " bytes are unacknowledged"));
  }
  if (window_bytes > limits_.max_window_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("window_bytes: got ", window_bytes,
                                                   ", allowed: 0..", limits_.max_window_bytes));
  }
  outstanding_ -= consumed_bytes;
  if (window_bytes != 0) window_ = window_bytes;
  return absl::OkStatus();
}

uint64_t FetchStream::NextFrameBytes() const {
  const uint64_t most = std::min<uint64_t>(limits_.frame_bytes, data_.size() - sent_);
  return half_closed_ ? most : std::min(most, window_);
}

bool FetchStream::blocked_by_window() const {
  return state_ == State::kSending && !half_closed_ && !current_cancelled_ && !failure_ &&
         outstanding_ + NextFrameBytes() > window_;
}

FetchStream::Step FetchStream::Next() {
  Step step;
  if (state_ == State::kSending && current_cancelled_) {
    step.action = Action::kCancelled;
    step.item = current_;
    state_ = State::kIdle;
    data_.clear();
    failure_.reset();
    return step;
  }
  if (!cancelled_.empty()) {
    step.action = Action::kCancelled;
    step.item = cancelled_.front();
    cancelled_.pop_front();
    return step;
  }
  if (state_ == State::kLoading) return step;
  if (state_ == State::kSending) {
    step.item = current_;
    if (failure_) {
      step.action = Action::kFailed;
      step.error = *std::move(failure_);
      failure_.reset();
      state_ = State::kIdle;
      return step;
    }
    const uint64_t bytes = NextFrameBytes();
    if (!half_closed_ && outstanding_ + bytes > window_) return step;
    step.action = Action::kFrame;
    step.offset = static_cast<uint32_t>(sent_);
    step.data = std::string_view(data_).substr(sent_, bytes);
    sent_ += bytes;
    outstanding_ += bytes;
    step.last = sent_ == data_.size();
    if (step.last) state_ = State::kIdle;
    return step;
  }
  while (!queue_.empty()) {
    const auto [item, number] = queue_.front();
    queue_.pop_front();
    const auto it = waiting_.find(item);
    if (it == waiting_.end() || it->second != number) continue;  // cancelled, perhaps ordered again
    waiting_.erase(it);
    state_ = State::kLoading;
    current_ = item;
    current_cancelled_ = false;
    step.action = Action::kLoad;
    step.item = item;
    return step;
  }
  if (half_closed_) step.action = Action::kDone;
  return step;
}

void FetchStream::Loaded(absl::StatusOr<std::string> bytes) {
  if (state_ != State::kLoading) return;
  state_ = State::kSending;
  sent_ = 0;
  failure_.reset();
  data_.clear();
  if (!bytes.ok()) {
    failure_ = bytes.status();
  } else if (bytes->empty()) {
    failure_ = absl::DataLossError("the item is empty");
  } else {
    data_ = *std::move(bytes);
  }
}

}  // namespace sparkv
