#include "edge/load/residual_blocks.h"

#include <algorithm>

#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "common/codec/column_decode.h"

namespace sparkv {

std::vector<ReceivedBlock> ResidualBlocks::Admit(
    const LoadState& state, const std::function<void(const BlockRef&)>& drop) {
  std::stable_sort(
      received_.begin(), received_.end(),
      [](const ReceivedBlock& a, const ReceivedBlock& b) { return a.block.layer < b.block.layer; });
  const bool final_ready = std::any_of(symbols_.begin(), symbols_.end(), [&](const auto& one) {
    return state.present(one.first.first, one.first.second - 1);
  });
  std::vector<ReceivedBlock> admitted;
  std::deque<ReceivedBlock> waiting;
  for (ReceivedBlock& received : received_) {
    const auto [column, layer] = received.block;
    if (layer >= state.closed(column)) {
      drop(received.block);
      continue;
    }
    const uint64_t bytes = symbol_bytes_(received.block);
    if (bytes_ + bytes > limit_bytes_ &&
        (decoding_ > 0 || final_ready || !state.present(column, layer - 1))) {
      waiting.push_back(std::move(received));
      continue;
    }
    bytes_ += bytes;
    ++decoding_;
    peak_bytes_ = std::max(peak_bytes_, bytes_);
    admitted.push_back(std::move(received));
  }
  received_ = std::move(waiting);
  return admitted;
}

void ResidualBlocks::Put(const BlockRef& block, BlockResidual residual) {
  --decoding_;
  bytes_ = bytes_ - symbol_bytes_(block) + residual.bytes();
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  symbols_[{block.column, block.layer}] = std::move(residual);
}

void ResidualBlocks::Forget(const BlockRef& block) {
  --decoding_;
  bytes_ -= symbol_bytes_(block);
}

BlockResidual ResidualBlocks::Take(const BlockRef& block) {
  const auto found = symbols_.find({block.column, block.layer});
  if (found == symbols_.end()) return {};
  BlockResidual residual = std::move(found->second);
  symbols_.erase(found);
  bytes_ -= residual.bytes();
  return residual;
}

void ResidualBlocks::Prune(const LoadState& state) {
  for (auto it = symbols_.begin(); it != symbols_.end();) {
    const BlockState is = state.block(it->first.first, it->first.second);
    if (is == BlockState::kSymbols || is == BlockState::kFinishing) {
      ++it;
      continue;
    }
    bytes_ -= it->second.bytes();
    it = symbols_.erase(it);
  }
}

absl::Status ColumnChains::Finish(const BlockRef& block, const BlockResidual& residual,
                                  bool below_computed, uint32_t begin,
                                  std::span<const int32_t> tokens, BlockCompute* compute,
                                  KvCache* cache) {
  std::unique_ptr<ColumnChain>& chain = chains_[block.column];
  if (chain == nullptr) {
    ASSIGN_OR_RETURN(chain, decoder_->Begin(begin, tokens));
  }
  CacheRowSink sink(cache, block.layer, begin);
  absl::Mutex mutex;
  absl::Status status;
  compute->ParallelRows(
      static_cast<uint32_t>(tokens.size()), kFinishRows, [&](uint32_t first, uint32_t last) {
        if (below_computed) {
          RestartChain(*decoder_, *cache, block.layer - 1, begin, first, last - first, chain.get());
        }
        const absl::Status s =
            decoder_->Finish(residual, block.layer, first, last, chain.get(), &sink);
        absl::MutexLock lock(&mutex);
        status.Update(s);
      });
  return status;
}

}  // namespace sparkv
