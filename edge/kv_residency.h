// What stays in KV memory between requests: loaded contexts and chat sessions, least recently used
// out first, all from one page pool whose budget is `kv_budget_bytes`.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/kv/kv_cache.h"
#include "edge/load/held_planes.h"

namespace sparkv {

struct HeldKv {
  std::unique_ptr<KvCache> cache;
  uint32_t level =
      0;  // codec level of its streamed blocks; 0: everything was computed here or is lossless
  std::shared_ptr<HeldPlanes> planes;  // what was streamed of a context; may be null
};

// Pages are shared between entries (KvCache::SharePrefix), so taking one entry out frees only what
// nobody else holds. Thread-safe; a cache that Find returned stays whole while the pointer is held,
// whatever is dropped meanwhile.
class KvResidency {
 public:
  explicit KvResidency(std::shared_ptr<KvPagePool> pool) : pool_(std::move(pool)) {}

  const std::shared_ptr<KvPagePool>& pool() const { return pool_; }

  // The entry, marked as used now, or nullptr.
  std::shared_ptr<const HeldKv> Find(std::string_view key);
  void Put(std::string key, HeldKv held);
  void Drop(std::string_view key);

  // Evicts entries other than `keep` until `tokens` more tokens fit in fresh pages.
  // ResourceExhausted, with the bytes needed and allowed, when they cannot; whatever was evicted
  // stays out then only if the request could fit an empty pool.
  absl::Status MakeRoom(uint64_t tokens, std::string_view keep);

  bool Contains(std::string_view key) const;
  // Entries whose key starts with `prefix`.
  uint32_t Count(std::string_view prefix) const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const HeldKv> held;
  };
  std::list<Entry>::iterator Locate(std::string_view key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<KvPagePool> pool_;
  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recently used first
};

}  // namespace sparkv
