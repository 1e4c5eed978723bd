// Received planes of a loaded context, as they came: a request for a higher level then fetches the
// missing ones only.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "edge/load/ports.h"

namespace sparkv {

// Bytes that the planes of all contexts may take together. Thread-safe.
class PlaneBudget {
 public:
  explicit PlaneBudget(uint64_t bytes) : bytes_(bytes) {}
  // False: there is not so much left.
  bool Take(uint64_t bytes);
  void Give(uint64_t bytes) { used_.fetch_sub(bytes); }
  uint64_t used() const { return used_.load(); }

 private:
  const uint64_t bytes_;
  std::atomic<uint64_t> used_{0};
};

// Of one context. Thread-safe.
class HeldPlanes {
 public:
  explicit HeldPlanes(std::shared_ptr<PlaneBudget> budget) : budget_(std::move(budget)) {}
  ~HeldPlanes();
  HeldPlanes(const HeldPlanes&) = delete;
  HeldPlanes& operator=(const HeldPlanes&) = delete;

  // Keeps a copy; not what the budget has no room for, which is fetched again when it is wanted.
  void Put(const ItemRef& item, const std::string& bytes);
  std::optional<std::string> Get(const ItemRef& item) const;
  bool Contains(const ItemRef& item) const;

 private:
  using Key = std::tuple<uint32_t, uint32_t, uint32_t>;
  static Key KeyOf(const ItemRef& item) { return {item.column, item.layer, item.plane}; }

  const std::shared_ptr<PlaneBudget> budget_;
  mutable absl::Mutex mutex_;
  std::map<Key, std::string> planes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparkv
