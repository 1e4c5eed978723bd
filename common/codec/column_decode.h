// Whole columns into a KV cache: what benchmarks, calibration and the server need. A load of the
// edge does the same steps in its own order (edge/load).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/thread_pool.h"
#include "common/codec/codec.h"
#include "common/codec/residual.h"
#include "common/kv/kv_cache.h"

namespace sparkv {

// Writes finished rows of one layer into a cache at `begin`.
class CacheRowSink final : public RowSink {
 public:
  CacheRowSink(KvCache* cache, uint32_t layer, uint32_t begin)
      : cache_(cache), layer_(layer), begin_(begin) {}
  void Write(uint32_t row, uint32_t n, const float* k, const float* v, size_t stride) override {
    cache_->WriteRows(layer_, begin_ + row, n, k, v, stride);
  }

 private:
  KvCache* const cache_;
  const uint32_t layer_;
  const uint32_t begin_;
};

// Rows [begin, begin + n) of `layer` of the cache become what the chain's next layer is predicted
// from.
void RestartChain(const ResidualDecoder& decoder, const KvCache& cache, uint32_t layer,
                  uint32_t column_begin, uint32_t begin, uint32_t n, ColumnChain* chain);

// blocks [layers][planes of a level] of one column into rows [first_token, + tokens) of the cache,
// which must reach so far. The decoder of the two is used that is not null; for a residual decoder
// the cache must hold the rows of layer 0 already, and the planes of layer 0 may be left out. Uses
// the pool's threads too (null: the caller alone).
absl::Status DecodeColumn(const BlockDecoder* blocks_decoder,
                          const ResidualDecoder* residual_decoder,
                          std::span<const std::vector<std::span<const uint8_t>>> blocks,
                          uint32_t first_token, std::span<const int32_t> tokens, ThreadPool* pool,
                          KvCache* cache);

}  // namespace sparkv
