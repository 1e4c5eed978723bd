// Two network namespaces with a bad link between them: a user-space router on two TUN devices that
// delays, drops, reorders and rate-limits IP packets. Real TCP has to cope, as on a real link; tc's
// netem is not in every kernel.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tests/testing/tun_lane.h"

namespace sparkv::testing {

class TunLink {
 public:
  // The two ends' addresses, side 0 and side 1.
  static constexpr const char* kAddress[2] = {"10.77.0.1", "10.77.0.2"};

  // Why this process cannot have such a link (no CAP_NET_ADMIN, no TUN device); empty: it can. The
  // only reason for which a test may be skipped.
  static std::string WhyNot();

  // `options` hold for each direction on its own, with seeds of their own.
  static absl::StatusOr<std::unique_ptr<TunLink>> Create(const TunOptions& options);
  ~TunLink();
  TunLink(const TunLink&) = delete;
  TunLink& operator=(const TunLink&) = delete;

  // Moves the calling thread, and what it starts from now on (threads and processes), into a side's
  // namespace. The rest of the process stays where it is.
  void Enter(int side) const;
  // Runs fn within a side and comes back. Sockets, threads and processes that fn makes belong to
  // the side.
  void RunIn(int side, const std::function<void()>& fn) const;

  // From now on, both directions. 1: the link is cut.
  void SetLoss(double loss);
  // Of packets that left `side`.
  TunCounters counters(int side) const;

 private:
  TunLink(const TunOptions& options);
  void Route();

  int namespace_[2] = {-1, -1};
  int tun_[2] = {-1, -1};
  int stop_ = -1;
  mutable absl::Mutex mutex_;
  TunLane lane_[2] ABSL_GUARDED_BY(mutex_);  // by the side that sends
  std::thread router_;
};

}  // namespace sparkv::testing
