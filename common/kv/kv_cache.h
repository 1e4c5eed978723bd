// The paged KV cache: pages of 64 tokens x all layers, from a pool with a byte budget; sequences
// share full pages by reference.
//
// Layout of a page: [layers][2 (K, V)][kv_heads][kPageTokens][head_dim], elements of the geometry's
// dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/kv/geometry.h"

namespace sparkv {

inline constexpr uint32_t kPageTokens = 64;
static_assert(kColumnTokens % kPageTokens == 0);

enum class KvSide : uint8_t { kK = 0, kV = 1 };

// Hands out pages until the budget is used. Thread-safe. Lives longer than every page (shared_ptr).
class KvPagePool : public std::enable_shared_from_this<KvPagePool> {
 public:
  // InvalidArgument for a bad geometry or a budget below one page.
  static absl::StatusOr<std::shared_ptr<KvPagePool>> Create(const KvGeometry& geometry,
                                                            uint64_t budget_bytes);
  ~KvPagePool();

  // A page with undefined content, returned to the pool when the last reference goes.
  // ResourceExhausted when the budget is used: the message says used and allowed bytes.
  absl::StatusOr<std::shared_ptr<std::byte>> Allocate();

  const KvGeometry& geometry() const { return geometry_; }
  uint64_t page_bytes() const { return page_bytes_; }
  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t used_bytes() const;

 private:
  KvPagePool(const KvGeometry& geometry, uint64_t budget_bytes);
  void Release(std::byte* page);

  const KvGeometry geometry_;
  const uint64_t page_bytes_;
  const uint64_t budget_bytes_;
  mutable absl::Mutex mutex_;
  uint64_t used_pages_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::byte*> free_ ABSL_GUARDED_BY(mutex_);
};

// K and V of one sequence of tokens. Extend, SharePrefix and Truncate need exclusive access; reads
// and writes of different (token range, layer) may run at once in several threads, and the caller
// orders a read after the write of the same range.
class KvCache {
 public:
  explicit KvCache(std::shared_ptr<KvPagePool> pool) : pool_(std::move(pool)) {}
  KvCache(KvCache&&) = default;
  KvCache& operator=(KvCache&&) = default;
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  const KvGeometry& geometry() const { return pool_->geometry(); }
  const std::shared_ptr<KvPagePool>& pool() const { return pool_; }
  uint32_t tokens() const { return tokens_; }
  uint64_t bytes() const { return pages_.size() * pool_->page_bytes(); }

  // Grows to `tokens` (never shrinks). The new rows are undefined until written. ResourceExhausted
  // leaves the sequence as it was.
  absl::Status Extend(uint32_t tokens);
  // Drops tokens from `tokens` on.
  void Truncate(uint32_t tokens);
  // Becomes the first `tokens` tokens of `other`: full pages are shared (and must not be written by
  // either side any more), a partial last page is copied. This sequence must be empty.
  absl::Status SharePrefix(const KvCache& other, uint32_t tokens);

  // First element of [kPageTokens][head_dim] of one page, layer, head and side; page < pages().
  std::byte* PageData(uint32_t page, uint32_t layer, KvSide side, uint32_t kv_head) const {
    const KvGeometry& g = geometry();
    const uint64_t rows =
        ((uint64_t{layer} * 2 + static_cast<uint64_t>(side)) * g.kv_heads + kv_head) * kPageTokens;
    return pages_[page].get() + rows * g.head_dim * ElementBytes(g.dtype);
  }
  uint32_t pages() const { return static_cast<uint32_t>(pages_.size()); }

  // Writes rows [begin, begin+n) of one layer from f32, rounding to the dtype (nearest even).
  // k, v: [n][kv_heads][head_dim], token stride `stride` floats.
  void WriteRows(uint32_t layer, uint32_t begin, uint32_t n, const float* k, const float* v,
                 size_t stride);
  // Reads rows as f32 into out [kv_heads][n][head_dim] with `head_stride` floats between heads.
  void ReadRows(uint32_t layer, KvSide side, uint32_t begin, uint32_t n, float* out,
                size_t head_stride) const;
  // The codec's view of f16 caches: [kv_heads][n][head_dim] raw f16 bits. FailedPrecondition for
  // f32.
  absl::Status ExportBlock(uint32_t layer, uint32_t begin, uint32_t n, uint16_t* k,
                           uint16_t* v) const;
  // Writes raw f16 bits [kv_heads][n][head_dim] (converted when the cache is f32).
  void ImportBlock(uint32_t layer, uint32_t begin, uint32_t n, const uint16_t* k,
                   const uint16_t* v);

 private:
  std::shared_ptr<KvPagePool> pool_;
  std::vector<std::shared_ptr<std::byte>> pages_;
  uint32_t tokens_ = 0;
};

}  // namespace sparkv
