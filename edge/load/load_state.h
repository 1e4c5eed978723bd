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
  kSymbols,    // entropy-decoded, waits for FINAL
  kFinishing,  // claimed by FINAL
  kStreamed,   // in the cache
  kComputed,   // in the cache
};

struct ComputeOp {
  enum class Kind : uint8_t { kProject, kAttend, kQuery, kFinal };
  Kind kind;
  uint32_t column;  // 0 for kQuery
  uint32_t layer;
};

// Seconds of an op by the problem's costs, at its slowdown.
double OpSeconds(const LoadProblem& problem, const ComputeOp& op);

// What the codec asks of a load.
struct CodecRules {
  // Decoded blocks are finished by FINAL(t, l), which needs (t, l - 1).
  bool needs_final = false;
  // PROJ(t, 0) of all columns comes first: every streamed block needs it.
  bool first_layer_local = false;
  // Nothing is streamed above a computed layer but layer 0, see LoadProblem.
  bool whole_columns = false;
};

class LoadState {
 public:
  LoadState(uint32_t columns, uint32_t layers, std::vector<uint32_t> depth, bool has_query,
            bool pipelined_query, const CodecRules& rules = {});

  BlockState block(uint32_t t, uint32_t l) const { return blocks_[size_t{t} * layers_ + l]; }
  bool present(uint32_t t, uint32_t l) const { return block(t, l) >= BlockState::kStreamed; }
  uint32_t hidden_depth(uint32_t t) const {
    return hidden_[t];
  }  // hidden(t, hidden_depth - 1) is the column's input now
  uint32_t depth(uint32_t t) const { return depth_[t]; }
  // A new plan's depth. It stays at least what MustCompute asked for.
  void SetDepth(uint32_t t, uint32_t depth);
  uint32_t query_layer() const { return query_; }  // layers that the query has passed
  const CodecRules& rules() const { return rules_; }
  // K, V of layer l are there in columns 0..t: ATTN(t, l) need not wait.
  bool AttendReady(uint32_t t, uint32_t l) const;

  // The next legal op that the plan asks for: QUERY, then PROJ of a first layer that all need, then
  // the first column with a gap below its depth whose next op is ready, or FINAL of the lowest
  // layer when that layer is no higher or nothing else is ready. nullopt: nothing can be done now.
  // Project and Final claim their block.
  std::optional<ComputeOp> NextOp();
  void Finish(const ComputeOp& op);

  // Whether what the stream brings of (t, l) can be used: nobody has it.
  bool Wanted(uint32_t t, uint32_t l) const {
    return block(t, l) == BlockState::kMissing && l < closed_[t];
  }
  // Nothing of column t is streamed from this layer on.
  uint32_t closed(uint32_t t) const { return closed_[t]; }
  // The stream has all planes of (t, l). False: not wanted; drop the bytes.
  bool ClaimForDecode(uint32_t t, uint32_t l);
  // Decoded into the cache or, with FINAL to come, into symbols; `ok` false: not decodable, it is
  // missing again and must be computed. It is also missing afterwards when it had to be dropped.
  void FinishDecode(uint32_t t, uint32_t l, bool ok);
  // FINAL of (t, l) was impossible: it is missing again and must be computed.
  void FailFinal(uint32_t t, uint32_t l);
  // (t, l) will not come over the stream: the column's depth grows past it. Where columns are
  // whole, what is above it is computed too, and symbols that wait there are dropped.
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
  void Close(uint32_t t, uint32_t l);
  // The lowest block that FINAL can be done of.
  std::optional<BlockRef> NextFinal() const;
  BlockState& At(uint32_t t, uint32_t l) { return blocks_[size_t{t} * layers_ + l]; }
  void MarkPresent(uint32_t t, uint32_t l, BlockState state);

  const uint32_t columns_;
  const uint32_t layers_;
  std::vector<uint32_t> depth_;
  const bool has_query_;
  const bool pipelined_query_;
  const CodecRules rules_;
  std::vector<uint32_t> least_depth_;  // [columns] what MustCompute asked for
  std::vector<BlockState> blocks_;     // [columns][layers]
  std::vector<uint32_t> hidden_;       // [columns]
  std::vector<uint32_t> closed_;       // [columns] from here on nothing is streamed
  std::vector<uint32_t> layer_left_;   // [layers] blocks not present
  std::vector<uint32_t> column_left_;  // [columns] blocks not present
  uint32_t done_ = 0;
  uint32_t query_ = 0;  // layers that the query has passed
};

}  // namespace sparkv
