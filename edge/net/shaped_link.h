// A link of chosen rate, delay and jitter: an in-process TCP relay on loopback between the edge and
// its server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "edge/net/token_bucket.h"

namespace sparkv {

struct LinkOptions {
  RateTrace rate;        // server -> edge; the other direction has the same
  double rtt_ms = 0;     // half of it in each direction; 0..60000
  double jitter_ms = 0;  // uniform in [0, jitter] on top of each chunk's delay, order kept
  uint64_t seed = 1;
};

// Bytes keep their order and are never lost. Buffers are small, so back-pressure reaches the
// sender. Thread-safe.
class ShapedLink {
 public:
  // Listens on 127.0.0.1, a free port, and forwards each connection to host:port `target`.
  // InvalidArgument for a bad target or option; Unavailable when no socket can be had.
  static absl::StatusOr<std::unique_ptr<ShapedLink>> Start(const std::string& target,
                                                           const LinkOptions& options);
  // Closes all connections and joins within 100 ms.
  virtual ~ShapedLink() = default;

  virtual std::string address() const = 0;          // 127.0.0.1:PORT
  virtual void SetRate(const RateTrace& rate) = 0;  // from now on
  virtual uint64_t bytes_to_edge() const = 0;
};

}  // namespace sparkv
