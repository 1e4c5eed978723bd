// What a load sees of the world: a stream of items, and compute. Tests put simulated ones in their
// place.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/kv/kv_cache.h"

namespace sparkv {

// One item (t, l, plane) of a stored context.
struct ItemRef {
  uint32_t column = 0;
  uint32_t layer = 0;
  uint32_t plane = 0;
  bool operator==(const ItemRef&) const = default;
};

// Receives a stream's events, one at a time, on the stream's own thread. Must not block.
class ItemSink {
 public:
  virtual ~ItemSink() = default;
  // A whole item whose length and CRC fit the manifest.
  virtual void OnItem(const ItemRef& item, std::string bytes) = 0;
  // This item will not come; others may.
  virtual void OnItemFailed(const ItemRef& item, const absl::Status& status) = 0;
  // Nothing more will come. The last event; not called after Stop.
  virtual void OnBroken(const absl::Status& status) = 0;
};

// A fetch of one context. Order and Cancel may be called from any thread and never block.
class ItemStream {
 public:
  virtual ~ItemStream() = default;
  // Begins; events may come from now on. Call once.
  virtual void Start(ItemSink* sink) = 0;
  // Appends to the order, or replaces what is ordered and not begun.
  virtual void Order(std::vector<ItemRef> items, bool replace) = 0;
  virtual void Cancel(std::vector<ItemRef> items) = 0;
  // Ends the fetch. After it returns no event comes any more. Idempotent; at most 200 ms.
  virtual void Stop() = 0;
  // Item bytes received so far, unfinished items included.
  virtual uint64_t bytes_received() const = 0;
};

// Forward passes, see common/llm/decoder.h. All calls come from the thread that runs the load.
class BlockCompute {
 public:
  virtual ~BlockCompute() = default;
  virtual uint32_t d_model() const = 0;
  virtual absl::Status Embed(std::span<const int32_t> tokens, float* hidden) = 0;
  virtual absl::Status Project(uint32_t layer, const float* hidden, uint32_t begin, uint32_t n,
                               KvCache* cache) = 0;
  virtual absl::Status Attend(uint32_t layer, float* hidden, uint32_t begin, uint32_t n,
                              const KvCache& cache, uint32_t first_row) = 0;
  // Runs fn on disjoint ranges that cover [0, rows) and begin at multiples of `unit`, perhaps in
  // several threads at once; returns when all have ended.
  virtual void ParallelRows(uint32_t rows, uint32_t /*unit*/,
                            const std::function<void(uint32_t begin, uint32_t end)>& fn) {
    if (rows > 0) fn(0, rows);
  }
};

}  // namespace sparkv
