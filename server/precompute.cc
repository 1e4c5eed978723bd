#include "server/precompute.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/codec/enc_column.h"
#include "common/codec/enc_column_copy.h"
#include "common/kv/context_id.h"

namespace sparkv {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(100);

}  // namespace

struct Precomputer::Job {
  // Constant once the job is made.
  std::vector<int32_t> tokens;
  const ServerCodec* codec = nullptr;
  Digest codec_digest{};
  std::vector<Digest> keys;
  CancelToken cancel;

  // Guarded by the precomputer's mutex.
  std::string name;
  int waiters = 0;
  PrecomputeProgressInfo progress;
  uint64_t version = 1;  // counts changes
  std::optional<absl::StatusOr<ContextRecord>> result;
};

// Encodes, checks and stores one column at a time on its own thread, so that the engine can go on
// with the next. Holds one column's raw K/V at most, the engine fills the next meanwhile.
class Precomputer::ColumnWorker {
 public:
  ColumnWorker(Store* store, ThreadPool* pool, const Prefiller& prefiller, const Job& job)
      : store_(store),
        pool_(pool),
        fingerprint_(prefiller.fingerprint()),
        geometry_(prefiller.geometry()),
        job_(job),
        thread_([this] { Loop(); }) {}
  ~ColumnWorker() {
    {
      absl::MutexLock lock(&mutex_);
      ending_ = true;
    }
    thread_.join();
  }

  // Waits for the previous column. The first error of any column.
  // active_blocks: [layers][kv_heads].
  absl::Status Hand(ColumnCopy column, std::vector<uint16_t> active_blocks) {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &ColumnWorker::Idle));
    if (!status_.ok()) return status_;
    next_ = Column{std::move(column), std::move(active_blocks)};
    return absl::OkStatus();
  }

  absl::Status Finish() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &ColumnWorker::Idle));
    return status_;
  }

 private:
  struct Column {
    ColumnCopy copy;
    std::vector<uint16_t> active_blocks;
  };

  bool Idle() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !next_ && !busy_; }
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return next_.has_value() || ending_; }

  void Loop() {
    for (;;) {
      Column column;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &ColumnWorker::HasWork));
        if (!next_) return;
        column = *std::move(next_);
        next_.reset();
        busy_ = true;
      }
      const absl::Status status = Encode(column);
      absl::MutexLock lock(&mutex_);
      busy_ = false;
      if (status_.ok()) status_ = status;
    }
  }

  absl::Status Encode(const Column& next) const {
    const ColumnCopy& column = next.copy;
    const Digest& key = job_.keys[column.index()];
    const ColumnInput input = column.input();
    const absl::StatusOr<EncodedColumn> encoded = job_.codec->encoder->EncodeColumn(input, pool_);
    if (!encoded.ok()) {
      return absl::Status(encoded.status().code(), absl::StrCat("encoding column ", column.index(),
                                                                ", ", encoded.status().message()));
    }
    ASSIGN_OR_RETURN(ColumnWriter writer,
                     ColumnWriter::Create(geometry_, input.shape.tokens, job_.codec->info(),
                                          fingerprint_, key, job_.codec->profile_digest()));
    const std::span<const uint16_t> active(next.active_blocks);
    for (size_t layer = 0; layer < encoded->planes.size(); ++layer) {
      RETURN_IF_ERROR(writer.AppendLayer(
          encoded->planes[layer], active.subspan(layer * geometry_.kv_heads, geometry_.kv_heads)));
    }
    if (encoded->needs_streamed_base()) writer.NeedsStreamedBase();
    ASSIGN_OR_RETURN(const std::string blob, writer.Finish());
    RETURN_IF_ERROR(Verify(column, input.shape, blob, encoded->planes));
    return store_->PutColumn(key, blob);
  }

  // Nothing is stored that can't be read back: all checksums, and one block decoded.
  absl::Status Verify(const ColumnCopy& column, const BlockShape& shape, std::string_view blob,
                      const std::vector<std::vector<std::string>>& planes) const {
    uint32_t layer = column.index() % geometry_.layers;
    if (job_.codec->info().computes_first_layer)
      layer = 1 + column.index() % (geometry_.layers - 1);
    absl::Status status = VerifyColumn(AsBytes(blob));
    if (status.ok()) {
      status =
          job_.codec->CheckBlock(layer, shape, planes[layer], column.k(layer), column.v(layer));
    }
    if (status.ok()) return status;
    return absl::InternalError(absl::StrCat(
        "column ", column.index(), " can't be read back after encoding: ", status.message()));
  }

  Store* const store_;
  ThreadPool* const pool_;
  const Digest fingerprint_;
  const KvGeometry geometry_;
  const Job& job_;
  absl::Mutex mutex_;
  std::optional<Column> next_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

Precomputer::Precomputer(Store* store, Prefiller* prefiller, const ServerCodecs* codecs,
                         const PrecomputeOptions& options)
    : store_(store),
      prefiller_(prefiller),
      codecs_(codecs),
      options_(options),
      encoders_(std::max(1, options.encode_threads)),
      engine_([this] { EngineLoop(); }) {}

Precomputer::~Precomputer() {
  Stop();
  engine_.join();
}

void Precomputer::Stop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  for (const auto& [id, job] : jobs_) job->cancel.Cancel();
  for (const auto& job : queue_) job->cancel.Cancel();
}

size_t Precomputer::pending() {
  absl::MutexLock lock(&mutex_);
  return jobs_.size();
}

absl::StatusOr<ContextRecord> Precomputer::Run(
    const Request& request, const std::function<bool(const PrecomputeProgressInfo&)>& on_progress) {
  const uint32_t most = std::min(prefiller_->context_length(), kMaxContextTokens);
  if (request.tokens.empty() || request.tokens.size() > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: got ", request.tokens.size(), ", allowed: 1..", most));
  }
  for (size_t i = 0; i < request.tokens.size(); ++i) {
    if (request.tokens[i] < 0 ||
        static_cast<uint32_t>(request.tokens[i]) >= prefiller_->vocabulary()) {
      return absl::InvalidArgumentError(absl::StrCat("tokens[", i, "]: got ", request.tokens[i],
                                                     ", allowed: 0..",
                                                     prefiller_->vocabulary() - 1));
    }
  }
  ASSIGN_OR_RETURN(const ServerCodec* const codec, codecs_->Find(request.codec));
  auto made = std::make_shared<Job>();
  made->tokens = request.tokens;
  made->codec = codec;
  made->codec_digest = codec->encoder->digest();
  made->name = request.name;
  ContextIdentity identity;
  identity.model_fingerprint = prefiller_->fingerprint();
  identity.codec_digest = made->codec_digest;
  made->keys = ColumnKeys(identity, made->tokens);
  made->progress.tokens_total = static_cast<uint32_t>(made->tokens.size());

  std::shared_ptr<Job> job;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::UnavailableError("the server is shutting down");
    const auto it = jobs_.find(made->keys.back());
    // A cancelled run can't be joined: it may have stopped already. The new one takes over its
    // columns.
    if (it != jobs_.end() && !it->second->cancel.cancelled() &&
        it->second->tokens == made->tokens) {
      job = it->second;
      if (!request.name.empty()) job->name = request.name;
    } else {
      job = made;
      jobs_[job->keys.back()] = job;
      queue_.push_back(job);
    }
    ++job->waiters;
  }
  absl::Cleanup leave = [this, &job] {
    absl::MutexLock lock(&mutex_);
    if (--job->waiters == 0 && !job->result) job->cancel.Cancel();
  };
  uint64_t seen = 0;
  for (;;) {
    PrecomputeProgressInfo progress;
    {
      absl::MutexLock lock(&mutex_);
      const auto changed = [&job, seen] { return job->version != seen; };
      mutex_.AwaitWithTimeout(absl::Condition(&changed), kPoll);
      if (job->result) return *job->result;
      seen = job->version;
      progress = job->progress;
    }
    if (!on_progress(progress)) return absl::CancelledError("the caller gave up");
  }
}

void Precomputer::Report(Job* job, uint32_t done, double seconds_left) {
  absl::MutexLock lock(&mutex_);
  job->progress.tokens_done = done;
  job->progress.seconds_left = seconds_left;
  ++job->version;
}

void Precomputer::EngineLoop() {
  for (;;) {
    std::shared_ptr<Job> job;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !queue_.empty();
      };
      mutex_.Await(absl::Condition(&has_work));
      if (queue_.empty()) return;
      job = queue_.front();
      queue_.pop_front();
    }
    absl::StatusOr<ContextRecord> result = Work(job.get());
    absl::MutexLock lock(&mutex_);
    if (absl::IsCancelled(result.status()) && stopping_) {
      result = absl::UnavailableError("the server is shutting down; finished columns are kept");
    }
    job->result = std::move(result);
    ++job->version;
    const auto it = jobs_.find(job->keys.back());
    if (it != jobs_.end() && it->second == job) jobs_.erase(it);
  }
}

absl::StatusOr<ContextRecord> Precomputer::Work(Job* job) {
  RETURN_IF_ERROR(job->cancel.Check());
  const std::unique_ptr<ColumnPin> pin = store_->PinColumns(job->keys);
  const uint32_t total = static_cast<uint32_t>(job->tokens.size());
  const uint32_t columns = ColumnCount(total);
  std::vector<bool> stored(columns);
  uint32_t missing_end = 0;  // one behind the last missing column
  uint32_t reused = 0;
  for (uint32_t t = 0; t < columns; ++t) {
    const absl::StatusOr<ColumnHeader> header =
        store_->FindColumn(job->keys[t], prefiller_->fingerprint(), job->codec_digest);
    if (!header.ok() && !absl::IsNotFound(header.status())) return header.status();
    stored[t] = header.ok();
    if (stored[t]) {
      reused += ColumnTokens(total, t);
    } else {
      missing_end = t + 1;
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    job->progress.tokens_reused = reused;
    job->progress.tokens_done = reused;
    ++job->version;
  }
  if (missing_end > 0) RETURN_IF_ERROR(PrefillMissing(job, stored, missing_end));

  ContextRecord record;
  record.id = job->keys.back();
  record.model_fingerprint = prefiller_->fingerprint();
  record.codec_digest = job->codec_digest;
  record.codec = std::string(job->codec->info().name);
  if (const Digest* profile = job->codec->profile_digest()) record.profile_digest = *profile;
  record.token_count = total;
  record.tokens = job->tokens;
  record.columns = job->keys;
  record.level_bytes.assign(static_cast<size_t>(job->codec->info().planes), 0);
  for (uint32_t t = 0; t < columns; ++t) {
    ASSIGN_OR_RETURN(
        const ColumnHeader header,
        store_->FindColumn(job->keys[t], prefiller_->fingerprint(), job->codec_digest));
    for (uint32_t layer = 0; layer < header.geometry.layers; ++layer) {
      uint64_t sum = 0;
      for (uint32_t p = 0; p < header.planes && p < record.level_bytes.size(); ++p) {
        sum += header.item(layer, p).bytes;
        record.level_bytes[p] += sum;
      }
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    record.name = job->name;
  }
  RETURN_IF_ERROR(store_->CommitContext(record));
  absl::StatusOr<ContextRecord> committed = store_->GetContext(record.id);
  // Somebody may have deleted it meanwhile: that comes after this answer.
  if (absl::IsNotFound(committed.status())) return record;
  return committed;
}

absl::Status Precomputer::ImportColumn(const Job& job, uint32_t t, KvCache* cache) {
  ASSIGN_OR_RETURN(const std::string blob, store_->ReadColumn(job.keys[t]));
  ASSIGN_OR_RETURN(const ColumnHeader header, ParseColumnHeader(AsBytes(blob)));
  ASSIGN_OR_RETURN(const BlockDecoder* const decoder,
                   FindDecoder(header.codec_id, header.codec_version));
  const uint32_t begin = t * kColumnTokens;
  RETURN_IF_ERROR(cache->Extend(begin + header.tokens));
  std::vector<uint16_t> k(header.shape().elements()), v(header.shape().elements());
  for (uint32_t layer = 0; layer < header.geometry.layers; ++layer) {
    std::vector<std::span<const uint8_t>> planes;
    for (uint32_t p = 0; p < header.planes; ++p) {
      const ByteRange range = header.ItemRange(layer, p);
      planes.push_back(AsBytes(blob).subspan(range.offset, range.bytes));
    }
    RETURN_IF_ERROR(decoder->DecodeBlock(header.shape(), planes, k.data(), v.data()));
    cache->ImportBlock(layer, begin, header.tokens, k.data(), v.data());
  }
  return absl::OkStatus();
}

absl::Status Precomputer::PrefillMissing(Job* job, std::vector<bool> stored, uint32_t missing_end) {
  const KvGeometry geometry = prefiller_->geometry();
  const uint32_t total = static_cast<uint32_t>(job->tokens.size());
  const uint32_t end = std::min(total, missing_end * kColumnTokens);
  const uint64_t pages = (uint64_t{end} + kPageTokens - 1) / kPageTokens;
  const uint64_t kv_bytes = pages * kPageTokens * geometry.token_bytes();
  if (kv_bytes > options_.kv_budget_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the K/V cache of ", end, " tokens takes ", kv_bytes,
                     " bytes, allowed: ", options_.kv_budget_bytes, " (kv_budget)"));
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<KvPagePool> pool, KvPagePool::Create(geometry, kv_bytes));
  KvCache cache(pool);

  uint32_t first = 0;  // the first column to prefill
  if (job->codec->info().lossless) {
    while (first < missing_end && stored[first]) {
      RETURN_IF_ERROR(job->cancel.Check());
      const absl::Status imported = ImportColumn(*job, first, &cache);
      if (!imported.ok()) {
        if (!absl::IsDataLoss(imported) && !absl::IsNotFound(imported)) return imported;
        // Damaged on the disk: compute it and all behind it.
        store_->DiscardColumn(job->keys[first]).IgnoreError();
        cache.Truncate(first * kColumnTokens);
        stored[first] = false;
        absl::MutexLock lock(&mutex_);
        job->progress.tokens_reused -= ColumnTokens(total, first);
        break;
      }
      ++first;
    }
  }
  const uint32_t reused = [&] {
    absl::MutexLock lock(&mutex_);
    return job->progress.tokens_reused;
  }();
  uint32_t fresh = 0;  // tokens of missing columns that are prefilled
  const absl::Time start = absl::Now();
  const uint32_t start_token = first * kColumnTokens;

  ColumnWorker worker(store_, &encoders_, *prefiller_, *job);
  absl::Status status;
  for (uint32_t t = first; t < missing_end && status.ok(); ++t) {
    const uint32_t begin = t * kColumnTokens;
    const uint32_t n = ColumnTokens(total, t);
    // Prefill again what is stored already is no progress to the caller, but counts for the time
    // left.
    const auto progress = [&](uint32_t done) {
      const double elapsed = absl::ToDoubleSeconds(absl::Now() - start);
      const uint32_t walked = begin + done - start_token;
      const double left = walked == 0 ? 0 : elapsed / walked * (end - begin - done);
      Report(job, std::min(total, reused + fresh + (stored[t] ? 0 : done)), left);
    };
    std::vector<uint16_t> active_blocks;
    status = prefiller_->Prefill(std::span(job->tokens).subspan(begin, n), &cache, job->cancel,
                                 progress, &active_blocks);
    if (!status.ok()) break;
    if (stored[t]) continue;
    progress(n);
    fresh += n;
    absl::StatusOr<ColumnCopy> column = ColumnCopy::Of(cache, job->tokens, t);
    status =
        column.ok() ? worker.Hand(*std::move(column), std::move(active_blocks)) : column.status();
  }
  // Also after an error: the column that is being encoded is worth keeping.
  const absl::Status written = worker.Finish();
  RETURN_IF_ERROR(written);
  return status;
}

}  // namespace sparkv
