// Blocks of a codec that predicts, between their arrival and the cache: as received, while there
// are too many; then as symbols, until FINAL finds the block below in the cache.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/codec/residual.h"
#include "common/kv/kv_cache.h"
#include "edge/load/decode_worker.h"
#include "edge/load/load_state.h"
#include "edge/load/ports.h"

namespace sparkv {

// Not thread-safe: the load's mutex guards it.
class ResidualBlocks {
 public:
  // Symbols take at most limit_bytes and one block more; `symbol_bytes` says those of a block.
  ResidualBlocks(uint64_t limit_bytes, std::function<uint64_t(const BlockRef&)> symbol_bytes)
      : limit_bytes_(limit_bytes), symbol_bytes_(std::move(symbol_bytes)) {}

  // A block that the state has claimed for decoding.
  void Receive(ReceivedBlock block) { received_.push_back(std::move(block)); }
  // Takes the blocks out that are to be decoded now, lowest layers first: while there is room, or
  // one whose block below is in the cache when FINAL would else have nothing to come. Each reserves
  // its bytes until Put or Forget.
  // Blocks that the state wants no more go to `drop`.
  std::vector<ReceivedBlock> Admit(const LoadState& state,
                                   const std::function<void(const BlockRef&)>& drop);
  // Decoded.
  void Put(const BlockRef& block, BlockResidual residual);
  // Not decodable.
  void Forget(const BlockRef& block);
  // For FINAL.
  BlockResidual Take(const BlockRef& block);
  // Drops symbols that the state has dropped.
  void Prune(const LoadState& state);

  uint64_t bytes() const { return bytes_; }
  uint64_t peak_bytes() const { return peak_bytes_; }

 private:
  const uint64_t limit_bytes_;
  const std::function<uint64_t(const BlockRef&)> symbol_bytes_;
  std::deque<ReceivedBlock> received_;
  std::map<std::pair<uint32_t, uint32_t>, BlockResidual> symbols_;  // by (column, layer)
  uint32_t decoding_ = 0;  // admitted, neither put nor forgotten
  uint64_t bytes_ = 0;
  uint64_t peak_bytes_ = 0;
};

// The chains of a load's columns. One thread.
class ColumnChains {
 public:
  ColumnChains(const ResidualDecoder* decoder, size_t columns)
      : decoder_(decoder), chains_(columns) {}

  // FINAL: block (column, layer) goes into rows [begin, begin + tokens.size()) of the cache. The
  // layer below must be there: `below_computed` says that it did not come through FINAL. Errors as
  // of ResidualDecoder::Finish; then the block's rows are undefined.
  absl::Status Finish(const BlockRef& block, const BlockResidual& residual, bool below_computed,
                      uint32_t begin, std::span<const int32_t> tokens, BlockCompute* compute,
                      KvCache* cache);
  // The column is complete.
  void Release(uint32_t column) { chains_[column].reset(); }

 private:
  const ResidualDecoder* const decoder_;
  std::vector<std::unique_ptr<ColumnChain>> chains_;
};

}  // namespace sparkv
