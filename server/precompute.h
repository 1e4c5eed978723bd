// Tokens -> stored context: prefill column by column, encode each column's layers on workers while
// the next one is being prefilled, store it, and commit the context when all its columns are
// durable.
//
// Resuming. Stored columns are kept as they are and never encoded again. The K/V of the positions
// before the first missing column is needed to go on:
//   lossless codec  it is decoded from the stored columns
//   lossy codec     those positions are prefilled again, since K/V that went through a lossy codec
//   would make the new
//                   columns depend on where a run was interrupted
// With no column missing nothing is computed.
//
// One engine thread runs all precomputes, first come first served (Decoder's rule: one thread makes
// all calls). Two equal requests share one run. A run that nobody waits for any more is cancelled
// between steps and keeps its columns.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/cancel.h"
#include "common/base/thread_pool.h"
#include "server/codecs.h"
#include "server/prefiller.h"
#include "server/store.h"

namespace sparkv {

struct PrecomputeOptions {
  int encode_threads = 1;                 // workers that encode; at least 1
  uint64_t kv_budget_bytes = 8ull << 30;  // K/V of the context that is being prefilled
};

struct PrecomputeProgressInfo {
  uint32_t tokens_done = 0;  // prefilled or found stored; all are stored when the run ends
  uint32_t tokens_total = 0;
  uint32_t tokens_reused = 0;  // in columns that were stored already
  double seconds_left = 0;     // 0: unknown yet
  bool operator==(const PrecomputeProgressInfo&) const = default;
};

class Precomputer {
 public:
  // All must outlive it.
  Precomputer(Store* store, Prefiller* prefiller, const ServerCodecs* codecs,
              const PrecomputeOptions& options);
  ~Precomputer();
  Precomputer(const Precomputer&) = delete;
  Precomputer& operator=(const Precomputer&) = delete;

  struct Request {
    std::vector<int32_t> tokens;
    std::string codec;  // a name that ServerCodecs knows
    std::string name;
  };
  // Blocks until the context is durable. on_progress runs on the calling thread, at once with what
  // is known, when something changed, and every 100 ms at least; false gives up waiting: Cancelled.
  // Errors: InvalidArgument (no tokens, an id outside the vocabulary, longer than the model's
  // context), FailedPrecondition (codec), ResourceExhausted (disk, or K/V beyond the budget: the
  // message says which), Unavailable (shutting down). Thread-safe.
  absl::StatusOr<ContextRecord> Run(
      const Request& request,
      const std::function<bool(const PrecomputeProgressInfo&)>& on_progress);

  // Ends every run and every wait with Unavailable; finished columns stay. Further runs are
  // refused.
  void Stop();

  // Runs that wait or work.
  size_t pending();

 private:
  struct Job;
  class ColumnWorker;
  void EngineLoop();
  absl::StatusOr<ContextRecord> Work(Job* job);
  absl::Status PrefillMissing(Job* job, std::vector<bool> stored, uint32_t missing_end);
  absl::Status ImportColumn(const Job& job, uint32_t t, KvCache* cache);
  void Report(Job* job, uint32_t done, double seconds_left);

  Store* const store_;
  Prefiller* const prefiller_;
  const ServerCodecs* const codecs_;
  const PrecomputeOptions options_;
  ThreadPool encoders_;
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::shared_ptr<Job>> queue_ ABSL_GUARDED_BY(mutex_);
  std::map<Digest, std::shared_ptr<Job>> jobs_
      ABSL_GUARDED_BY(mutex_);  // by context id; joinable ones
  std::thread engine_;
};

}  // namespace sparkv
