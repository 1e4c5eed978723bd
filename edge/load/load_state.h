// Which block of a load is where, and what may be done next. Pure: no threads, no time, no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "edge/load/plan.h"

namespace sparkv {

enum class BlockState : uint8_t {
  kMissing,    // nobody has it; may be ordered
  kComputing,  // claimed by compute: what the stream brings is dropped
  kDecoding,   // all planes are here and being decoded: compute leaves it alone
  kStreamed,   // in the cache
  kComputed,   // in the cache
};

struct ComputeOp {
  enum class Kind : uint8_t { kProject, kAttend, kQuery };
  Kind kind;
  uint32_t column;  // 0 for kQuery
  uint32_t layer;
};

class LoadState {
 public:
  LoadState(uint32_t columns, uint32_t layers, std::vector<uint32_t> depth, bool has_query,
            bool pipelined_query);

  BlockState block(uint32_t t, uint32_t l) const { return blocks_[size_t{t} * layers_ + l]; }
  bool present(uint32_t t, uint32_t l) const { return block(t, l) >= BlockState::kStreamed; }
  uint32_t hidden_depth(uint32_t t) const {
    return hidden_[t];
  }  // hidden(t, hidden_depth - 1) is the column's input now
  uint32_t depth(uint32_t t) const { return depth_[t]; }

  // The next legal op that the plan asks for: QUERY first, else the first column with a gap below
  // its depth whose next op is ready. nullopt: nothing can be done now. Project claims its block.
  std::optional<ComputeOp> NextOp();
  void Finish(const ComputeOp& op);

  // The stream has all planes of (t, l). False: compute has it or it is there; drop the bytes.
  bool ClaimForDecode(uint32_t t, uint32_t l);
  // Decoded into the cache, or (`ok` false) not decodable: it is missing again and must be
  // computed.
  void FinishDecode(uint32_t t, uint32_t l, bool ok);
  // (t, l) will not come over the stream: the column's depth grows past it.
  void MustCompute(uint32_t t, uint32_t l);
  // Nothing more comes: everything missing is computed.
  void ComputeAll();

  // Whether QUERY of the last layer (or, without a query, every block) is done.
  bool done() const;
  uint32_t blocks_done() const { return done_; }
  uint32_t blocks_total() const { return static_cast<uint32_t>(blocks_.size()); }
  bool layer_complete(uint32_t l) const { return layer_left_[l] == 0; }
  // Every block of column t is present: its hidden rows are needed no more.
  bool column_complete(uint32_t t) const { return column_left_[t] == 0; }
  // The lowest missing layer of column t at or above its hidden depth, up to `below`; nullopt:
  // none.
  std::optional<uint32_t> Gap(uint32_t t, uint32_t below) const;

 private:
  BlockState& At(uint32_t t, uint32_t l) { return blocks_[size_t{t} * layers_ + l]; }
  void MarkPresent(uint32_t t, uint32_t l, BlockState state);
  bool AttendReady(uint32_t t, uint32_t l) const;

  const uint32_t columns_;
  const uint32_t layers_;
  std::vector<uint32_t> depth_;
  const bool has_query_;
  const bool pipelined_query_;
  std::vector<BlockState> blocks_;     // [columns][layers]
  std::vector<uint32_t> hidden_;       // [columns]
  std::vector<uint32_t> layer_left_;   // [layers] blocks not present
  std::vector<uint32_t> column_left_;  // [columns] blocks not present
  uint32_t done_ = 0;
  uint32_t query_ = 0;  // layers that the query has passed
};

}  // namespace sparkv
