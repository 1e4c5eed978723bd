#include "common/codec/column_decode.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"

namespace sparkv {
namespace {

// Runs fn(first, last) over strips of kFinishRows rows and returns the first error.
template <typename Fn>
absl::Status ForStrips(ThreadPool* pool, uint32_t rows, Fn fn) {
  absl::Mutex mutex;
  absl::Status status;
  const size_t strips = (rows + kFinishRows - 1) / kFinishRows;
  ParallelFor(pool, strips, 1, [&](size_t begin, size_t end) {
    const absl::Status s = fn(static_cast<uint32_t>(begin) * kFinishRows,
                              std::min(rows, static_cast<uint32_t>(end) * kFinishRows));
    absl::MutexLock lock(&mutex);
    status.Update(s);
  });
  return status;
}

}  // namespace

void RestartChain(const ResidualDecoder& decoder, const KvCache& cache, uint32_t layer,
                  uint32_t column_begin, uint32_t begin, uint32_t n, ColumnChain* chain) {
  const KvGeometry& g = cache.geometry();
  // ReadRows gives heads apart, the chain wants rows.
  std::vector<float> heads(size_t{n} * g.row()), k(heads.size()), v(heads.size());
  for (const KvSide side : {KvSide::kK, KvSide::kV}) {
    cache.ReadRows(layer, side, column_begin + begin, n, heads.data(), size_t{n} * g.head_dim);
    std::vector<float>& rows = side == KvSide::kK ? k : v;
    for (uint32_t h = 0; h < g.kv_heads; ++h) {
      for (uint32_t i = 0; i < n; ++i) {
        std::copy_n(&heads[(size_t{h} * n + i) * g.head_dim], g.head_dim,
                    &rows[size_t{i} * g.row() + size_t{h} * g.head_dim]);
      }
    }
  }
  decoder.Restart(chain, begin, n, k.data(), v.data(), g.row());
}

absl::Status DecodeColumn(const BlockDecoder* blocks_decoder,
                          const ResidualDecoder* residual_decoder,
                          std::span<const std::vector<std::span<const uint8_t>>> blocks,
                          uint32_t first_token, std::span<const int32_t> tokens, ThreadPool* pool,
                          KvCache* cache) {
  const KvGeometry& g = cache->geometry();
  const auto rows = static_cast<uint32_t>(tokens.size());
  const BlockShape shape{g.kv_heads, rows, g.head_dim};
  const uint64_t last = uint64_t{first_token} + rows;
  if (blocks.size() != g.layers || last > cache->tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("decoding ", blocks.size(), " layers into rows ", first_token, "..", last,
                     " of a cache of ", g.layers, " layers and ", cache->tokens(), " tokens"));
  }
  if (residual_decoder == nullptr) {
    absl::Mutex mutex;
    absl::Status status;
    ParallelFor(pool, g.layers, 1, [&](size_t begin, size_t end) {
      std::vector<uint16_t> k(shape.elements()), v(shape.elements());
      for (size_t l = begin; l < end; ++l) {
        const absl::Status s = blocks_decoder->DecodeBlock(shape, blocks[l], k.data(), v.data());
        if (!s.ok()) {
          absl::MutexLock lock(&mutex);
          status.Update(absl::Status(s.code(), absl::StrCat("layer ", l, ": ", s.message())));
          return;
        }
        cache->ImportBlock(static_cast<uint32_t>(l), first_token, rows, k.data(), v.data());
      }
    });
    return status;
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ColumnChain> chain,
                   residual_decoder->Begin(first_token, tokens));
  for (uint32_t l = 0; l < g.layers; ++l) {
    if (l == 0 && blocks[0].empty()) continue;  // not fetched
    const absl::StatusOr<BlockResidual> residual = residual_decoder->Read(l, shape, blocks[l]);
    if (!residual.ok()) {
      return absl::Status(residual.status().code(),
                          absl::StrCat("layer ", l, ": ", residual.status().message()));
    }
    if (l == 0) continue;
    // Only now is the cache known to have the profile's shape.
    if (l == 1) RestartChain(*residual_decoder, *cache, 0, first_token, 0, rows, chain.get());
    CacheRowSink sink(cache, l, first_token);
    RETURN_IF_ERROR(ForStrips(pool, rows, [&](uint32_t begin, uint32_t end) {
      return residual_decoder->Finish(*residual, l, begin, end, chain.get(), &sink);
    }));
  }
  return absl::OkStatus();
}

}  // namespace sparkv
