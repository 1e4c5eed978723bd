// Runs one load: streams some blocks of a context, computes the others, and runs the query's own
// prefill layer by layer as layers become complete.
//
// The thread that calls Run does all compute; items arrive on the stream's thread; one worker
// decodes them. Blocks of a codec that predicts are then finished by compute, column by column from
// the bottom up; those of other codecs by the worker. Each block is filled exactly once: compute
// claims a block before it writes, a decoded block is written only while nobody has claimed it, and
// whoever comes second is cancelled or dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/codec/codec.h"
#include "common/codec/residual.h"
#include "common/kv/kv_cache.h"
#include "edge/load/controller.h"
#include "edge/load/plan.h"
#include "edge/load/policy.h"
#include "edge/load/ports.h"

namespace sparkv {

struct LoadProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;  // planned for the stream
  uint32_t blocks_done = 0;
  uint32_t blocks_total = 0;
};

// Blocks at one level of the codec.
struct LevelBytes {
  uint32_t planes = 0;
  std::vector<uint64_t> block_bytes;  // as LoadProblem's
};

struct LoadJob {
  std::span<const int32_t> context;  // token ids, at least 1
  std::span<const int32_t> query;    // may be empty
  KvCache* cache = nullptr;          // empty; Run extends it to context + query tokens
  LoadPolicy* policy = nullptr;  // of this load alone
  LoadProblem problem;           // block_bytes all 0 when there is no stream
  ItemStream* stream = nullptr;  // null: everything is computed
  // With a stream: one of them.
  const BlockDecoder* decoder = nullptr;
  const ResidualDecoder* residual = nullptr;
  uint32_t planes = 0;  // of the level, with stream
  // With slo > 0 and several levels, ascending and none above `planes`: whenever the load would end
  // later than slo after Run began, at the rate of the link now, blocks of which nothing has come
  // are loaded at the highest level that is in time, or else the lowest. They don't rise again.
  absl::Duration slo;
  std::vector<LevelBytes> levels;
  CancelToken cancel;
  std::function<void(const LoadProgress&)> progress;  // on the calling thread; may be null
  uint32_t step_rows = 256;                           // rows between two cancellation checks
  absl::Duration stall_limit =
      absl::Seconds(15);  // items outstanding and no byte for so long: the stream is given up
  // Symbols that wait for FINAL take so much memory and a block more; beyond, blocks wait as they
  // came.
  uint64_t waiting_limit_bytes = 64 << 20;
};

struct LoadEvent {
  enum class Kind : uint8_t { kStreamed, kComputed, kQuery };
  Kind kind;
  uint32_t column = 0;
  uint32_t layer = 0;
  double begin_s = 0;  // since Run began
  double end_s = 0;
};

struct LoadResult {
  std::vector<float>
      last_hidden;  // [d_model] of the last query token after the last layer; empty without a query
  LoadPlan plan;  // the first one
  Migrations migrations;
  std::vector<LoadEvent> timeline;    // by end time
  std::vector<std::string> degraded;  // why the plan was left; empty: as planned
  double stream_s = 0;                // first order -> last item
  double decode_s = 0;                // codec work but FINAL
  double final_s = 0;                 // FINAL of streamed blocks: prediction, inverse transform
  double compute_s = 0;               // PROJ and ATTN of context blocks
  double stall_s = 0;                 // compute idle
  double query_s = 0;                 // QUERY
  double total_s = 0;
  uint64_t bytes_fetched = 0;
  uint32_t blocks_streamed = 0;
  uint32_t blocks_computed = 0;
  uint32_t least_planes = 0;   // of any streamed block; 0: none was streamed
  uint64_t waiting_bytes = 0;  // most memory that symbols took at once
};

// Cancelled, ResourceExhausted (KV memory), or an error of compute; trouble of the stream is never
// an error. On error the cache's content is undefined. The stream is stopped when Run returns.
absl::StatusOr<LoadResult> RunLoad(const LoadJob& job, BlockCompute* compute, const Clock& clock);

}  // namespace sparkv
