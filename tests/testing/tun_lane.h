// One direction of a bad link, packet by packet, without threads, clocks or sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>

namespace sparkv::testing {

struct TunOptions {
  double mbit = 0;      // 0: no limit
  double delay_ms = 0;  // one way
  double loss = 0;      // share of packets that vanish, 0..1
  double reorder = 0;   // share of packets that are held back by reorder_ms and so overtaken
  double reorder_ms = 4;
  double queue_ms =
      200;  // what would wait longer for the rate is dropped, as a full router queue does
  uint64_t seed = 1;
};

struct TunCounters {
  uint64_t packets = 0;  // that came in
  uint64_t lost = 0;
  uint64_t overflowed = 0;
  uint64_t reordered = 0;
  uint64_t bytes = 0;  // that came through
};

// Thread-compatible. The same seed and the same packets give the same fate for each.
class TunLane {
 public:
  explicit TunLane(const TunOptions& options) : options_(options), rng_(options.seed) {}

  // When a packet that comes in at now_s is delivered; nullopt: never.
  std::optional<double> Deliver(double now_s, size_t bytes) {
    ++counters_.packets;
    const bool lost = Draw() < options_.loss;
    const bool late = Draw() < options_.reorder;
    const double start = free_s_ > now_s ? free_s_ : now_s;
    if (start - now_s > options_.queue_ms / 1e3) {
      ++counters_.overflowed;
      return std::nullopt;
    }
    free_s_ = start + (options_.mbit > 0 ? static_cast<double>(bytes) * 8e-6 / options_.mbit : 0);
    if (lost) {
      ++counters_.lost;
      return std::nullopt;
    }
    if (late) ++counters_.reordered;
    counters_.bytes += bytes;
    return free_s_ + (options_.delay_ms + (late ? options_.reorder_ms : 0)) / 1e3;
  }
  void SetLoss(double loss) { options_.loss = loss; }
  const TunCounters& counters() const { return counters_; }

 private:
  // [0, 1)
  double Draw() { return static_cast<double>(rng_() >> 11) * 0x1p-53; }

  TunOptions options_;
  std::mt19937_64 rng_;
  TunCounters counters_;
  double free_s_ = 0;
};

}  // namespace sparkv::testing
