// One Fetch stream as a pure state machine: no gRPC, no threads, no disk. What the edge says goes
// in, what to do next comes out.
//
//   Order    appends items; what waits already, or is being sent, is not ordered twice. What was
//   sent before is sent again.
//            `replace` first forgets what is not begun; the item being sent is finished.
//   Cancel   an item that waits is dropped; the one being sent stops after the frame that is out.
//   Each is answered with
//            one `cancelled`; what is neither waiting nor being sent is ignored (it crossed with
//            its last frame).
//   Window   a frame goes out only when it fits into the window whole, so that no window gives tiny
//   frames; a window below
//            a frame gives frames of the window's size.
//   HalfClose what is ordered is still sent. No Window can follow, so the window no longer counts:
//   HTTP/2's
//            flow control bounds what is under way.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sparkv {

struct ItemKey {
  uint32_t column = 0;
  uint32_t layer = 0;
  uint32_t plane = 0;
  bool operator==(const ItemKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const ItemKey& k) {
    return H::combine(std::move(h), k.column, k.layer, k.plane);
  }
};

// What the items of a context range over.
struct FetchShape {
  uint32_t columns = 0;
  uint32_t layers = 0;
  uint32_t planes = 0;
};

struct FetchLimits {
  uint32_t frame_bytes = 256u << 10;
  uint64_t max_window_bytes = 64u << 20;
  uint32_t max_message_items = 65536;   // of one Order or Cancel
  size_t max_waiting_items = 1u << 18;  // and of answers to cancels that are not yet sent
};

// Thread-compatible.
class FetchStream {
 public:
  // window_bytes: 1..limits.max_window_bytes (the caller has replaced 0 by the default and checked
  // it).
  FetchStream(const FetchShape& shape, uint64_t window_bytes, const FetchLimits& limits = {});

  // An error ends the stream: InvalidArgument (item outside the shape, too many in one message,
  // more consumed than was sent, a window out of range), ResourceExhausted (too many items wait).
  // Nothing of the message has been applied then.
  absl::Status Order(std::span<const ItemKey> items, bool replace);
  absl::Status Cancel(std::span<const ItemKey> items);
  absl::Status Window(uint64_t consumed_bytes, uint64_t window_bytes);  // window 0: unchanged
  void HalfClose() { half_closed_ = true; }

  enum class Action {
    kWait,       // nothing to do until something comes in
    kLoad,       // read `item` and call Loaded; Next gives kWait until then, or answers to cancels
    kFrame,      // send `data`
    kFailed,     // send `failed` with `error`
    kCancelled,  // send `cancelled`
    kDone,       // half-closed and everything sent: end the stream with Ok
  };
  struct Step {
    Action action = Action::kWait;
    ItemKey item;
    uint32_t offset = 0;
    std::string_view data;  // lives until the next call of Next or Loaded
    bool last = false;
    absl::Status error;
  };
  // The next thing to do. A returned frame, failure or answer counts as sent.
  Step Next();
  // The bytes of the item of the last kLoad (not empty), or why they can't be had.
  void Loaded(absl::StatusOr<std::string> bytes);

  bool loading() const { return state_ == State::kLoading; }
  size_t waiting() const { return waiting_.size(); }
  uint64_t outstanding_bytes() const { return outstanding_; }
  // Something is ordered, but the window holds it back.
  bool blocked_by_window() const;

 private:
  enum class State { kIdle, kLoading, kSending };
  absl::Status Check(std::span<const ItemKey> items) const;
  uint64_t NextFrameBytes() const;
  void Compact();

  const FetchShape shape_;
  const FetchLimits limits_;
  uint64_t window_;
  uint64_t outstanding_ = 0;  // data bytes sent and not consumed
  bool half_closed_ = false;
  // A queue entry counts only while waiting_ has its number: dropping an item is one erase.
  std::deque<std::pair<ItemKey, uint64_t>> queue_;
  absl::flat_hash_map<ItemKey, uint64_t> waiting_;
  uint64_t next_number_ = 0;
  std::deque<ItemKey> cancelled_;  // answers not yet sent
  State state_ = State::kIdle;
  ItemKey current_;
  bool current_cancelled_ = false;
  std::optional<absl::Status> failure_;
  std::string data_;
  uint64_t sent_ = 0;  // of data_
};

}  // namespace sparkv
