#include "edge/load/loader.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "common/codec/column_decode.h"
#include "edge/load/controller.h"
#include "edge/load/decode_worker.h"
#include "edge/load/residual_blocks.h"

namespace sparkv {
namespace {

constexpr absl::Duration kPoll =
    absl::Milliseconds(20);             // cancellation and stalls are noticed within this
constexpr double kFitSeconds = 0.1;     // between two looks at the level
constexpr double kReportSeconds = 0.1;  // between two reports of progress

CodecRules RulesOf(const LoadJob& job) {
  return {.needs_final = job.residual != nullptr && job.residual->predicts(),
          .first_layer_local = job.problem.first_layer_local,
          .whole_columns = job.problem.whole_columns};
}

class Load final : public ItemSink {
 public:
  Load(const LoadJob& job, BlockCompute* compute, const Clock& clock)
      : job_(job),
        compute_(compute),
        clock_(clock),
        begin_(clock.Now()),
        rules_(RulesOf(job)),
        controller_(job.problem, job.policy, rules_),
        hidden_(job.problem.columns()),
        received_(size_t{job.problem.columns()} * job.problem.layers),
        residuals_(job.waiting_limit_bytes,
                   [this](const BlockRef& block) {
                     return uint64_t{4} * job_.cache->geometry().row() * Rows(block.column);
                   }),
        chains_(job.residual, job.problem.columns()) {
    for (Received& received : received_) received.want = job.planes;
  }

  absl::StatusOr<LoadResult> Run();

 private:
  struct Received {
    std::vector<std::string> planes;
    uint32_t have = 0;
    uint32_t want = 0;
    double begin_s = 0;
  };
  double Seconds() const { return absl::ToDoubleSeconds(clock_.Now() - begin_); }
  uint32_t context() const { return static_cast<uint32_t>(job_.context.size()); }
  Received& At(uint32_t t, uint32_t l) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return received_[size_t{t} * job_.problem.layers + l];
  }
  uint32_t Rows(uint32_t column) const { return job_.problem.column_tokens[column]; }
  std::span<const int32_t> Tokens(uint32_t column) const {
    return job_.context.subspan(job_.problem.begin(column), Rows(column));
  }
  BlockShape Shape(uint32_t column) const {
    const KvGeometry& g = job_.cache->geometry();
    return {g.kv_heads, Rows(column), g.head_dim};
  }
  // Appends the first `planes` planes of a block.
  static void AddItems(const BlockRef& block, uint32_t planes, std::vector<ItemRef>* items) {
    for (uint32_t p = 0; p < planes; ++p) items->push_back({block.column, block.layer, p});
  }

  void OnItem(const ItemRef& item, std::string bytes) override;
  void OnItemFailed(const ItemRef& item, const absl::Status& status) override;
  void OnBroken(const absl::Status& status) override;
  // On the worker: a block into the cache, or into symbols that wait for FINAL.
  void Decode(const ReceivedBlock& received);
  absl::Status DecodePlanes(const BlockRef& block, std::span<const std::span<const uint8_t>> planes,
                            BlockResidual* symbols, double* final_seconds);
  void AddStreamed(const BlockRef& block, double end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After a change of state: drops and decodes what waited for it.
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void StartStream();
  void GiveUpStream(const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Degrade(const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells the stream what the controller wants of it now.
  void Order() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of a block at the level that it comes at.
  double BytesOf(size_t block) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lowers the level of what has not begun to come when it would come too late, and cancels the
  // items that are of no use then.
  void FitLevel() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckStall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Execute(const ComputeOp& op);
  // Frees what complete columns need no more.
  void Release() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // FINAL. A block that cannot be finished is computed.
  void ExecuteFinal(const ComputeOp& op);
  absl::Status ForSteps(uint32_t rows, const std::function<absl::Status(uint32_t, uint32_t)>& step);
  void ReportProgress();
  // Between steps of compute, and while it waits: rates, plan, orders, stall, progress. `share` of
  // the running op is done.
  void Watch(double share);

  const LoadJob& job_;
  BlockCompute* compute_;
  const Clock& clock_;
  const absl::Duration begin_;
  const CodecRules rules_;

  absl::Mutex mutex_;
  LoadController controller_ ABSL_GUARDED_BY(mutex_);
  uint64_t events_ ABSL_GUARDED_BY(mutex_) = 0;  // grows with each event of the stream
  std::vector<std::vector<float>>
      hidden_;  // [columns] of [tokens][d_model], from the first op of a column to its last
  std::vector<float> query_hidden_;                         // [query][d_model]
  std::vector<Received> received_ ABSL_GUARDED_BY(mutex_);  // [columns][layers]
  ResidualBlocks residuals_ ABSL_GUARDED_BY(mutex_);
  ColumnChains chains_;                                   // of the loading thread
  std::vector<std::unique_ptr<ColumnChain>> own_chains_;  // of the worker, when nothing predicts
  double first_order_s_ = 0;
  double last_item_s_ ABSL_GUARDED_BY(mutex_) = 0;
  double fitted_s_ = 0;  // when FitLevel last looked
  double last_report_s_ = -1;
  uint64_t seen_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  double seen_bytes_s_ ABSL_GUARDED_BY(mutex_) = 0;
  LoadResult result_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<DecodeWorker> worker_;
};

void Load::Degrade(const std::string& reason) {
  constexpr size_t kMaxReasons = 16;  // a stream full of errors needs no list of them all
  if (result_.degraded.size() < kMaxReasons) result_.degraded.push_back(reason);
}

void Load::GiveUpStream(const std::string& reason) {
  if (!controller_.streaming()) return;
  const LoadState& state = controller_.state();
  if (state.blocks_done() < state.blocks_total()) Degrade(reason);
  controller_.EndStream(Seconds());
  Settle();
}

void Load::Settle() {
  if (!rules_.needs_final || worker_ == nullptr) return;
  residuals_.Prune(controller_.state());
  const auto drop = [this](const BlockRef& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    controller_.FinishDecode(block.column, block.layer, /*ok=*/false);
  };
  for (ReceivedBlock& block : residuals_.Admit(controller_.state(), drop))
    worker_->Post(std::move(block));
}

void Load::OnItem(const ItemRef& item, std::string bytes) {
  absl::MutexLock lock(&mutex_);
  ++events_;
  // Items come one after the other: this one has been on its way since the last.
  const double begin = std::max(first_order_s_, last_item_s_);
  const double now = last_item_s_ = Seconds();
  if (item.column >= job_.problem.columns() || item.layer >= job_.problem.layers) return;
  controller_.OnBytes(now, job_.stream->bytes_received());
  if (!controller_.state().Wanted(item.column, item.layer)) return;  // compute came first
  Received& received = At(item.column, item.layer);
  if (item.plane >= received.want) return;
  if (received.planes.empty()) {
    received.planes.resize(received.want);
    received.begin_s = begin;
  }
  if (!received.planes[item.plane].empty()) return;
  received.planes[item.plane] = std::move(bytes);
  if (++received.have < received.want) return;
  if (!controller_.ClaimForDecode(now, item.column, item.layer)) return;
  ReceivedBlock complete{{item.column, item.layer}, std::move(received.planes)};
  if (rules_.needs_final) {
    residuals_.Receive(std::move(complete));
    Settle();
  } else {
    worker_->Post(std::move(complete));
  }
  Order();
}

void Load::OnItemFailed(const ItemRef& item, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  ++events_;
  if (item.column >= job_.problem.columns() || item.layer >= job_.problem.layers) return;
  if (!controller_.state().Wanted(item.column, item.layer)) return;
  if (item.plane >= At(item.column, item.layer).want) return;  // it is of no use any more
  Degrade(absl::StrCat("column ", item.column, " layer ", item.layer,
                       " was computed here: ", status.ToString()));
  controller_.FailBlock(Seconds(), item.column, item.layer);
  At(item.column, item.layer) = {.want = job_.planes};
  std::vector<ItemRef> items;
  AddItems({item.column, item.layer}, job_.planes, &items);
  job_.stream->Cancel(std::move(items));  // its other planes are of no use
  Settle();
  Order();
}

void Load::OnBroken(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  ++events_;
  GiveUpStream(
      absl::StrCat("the stream ended early, the rest was computed here: ", status.ToString()));
}

absl::Status Load::DecodePlanes(const BlockRef& block,
                                std::span<const std::span<const uint8_t>> planes,
                                BlockResidual* symbols, double* final_seconds) {
  const BlockShape shape = Shape(block.column);
  const uint32_t begin = job_.problem.begin(block.column);
  if (job_.residual == nullptr) {
    std::vector<uint16_t> k(shape.elements()), v(shape.elements());
    RETURN_IF_ERROR(job_.decoder->DecodeBlock(shape, planes, k.data(), v.data()));
    job_.cache->ImportBlock(block.layer, begin, shape.tokens, k.data(), v.data());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(BlockResidual residual, job_.residual->Read(block.layer, shape, planes));
  if (rules_.needs_final) {
    *symbols = std::move(residual);
    return absl::OkStatus();
  }
  const double start = Seconds();
  own_chains_.resize(job_.problem.columns());
  std::unique_ptr<ColumnChain>& chain = own_chains_[block.column];
  if (chain == nullptr) {
    ASSIGN_OR_RETURN(chain, job_.residual->Begin(begin, Tokens(block.column)));
  }
  CacheRowSink sink(job_.cache, block.layer, begin);
  RETURN_IF_ERROR(
      job_.residual->Finish(residual, block.layer, 0, shape.tokens, chain.get(), &sink));
  *final_seconds = Seconds() - start;
  return absl::OkStatus();
}

void Load::AddStreamed(const BlockRef& block, double end) {
  const uint32_t planes = At(block.column, block.layer).want;
  result_.least_planes =
      result_.least_planes == 0 ? planes : std::min(result_.least_planes, planes);
  ++result_.blocks_streamed;
  result_.timeline.push_back({LoadEvent::Kind::kStreamed, block.column, block.layer,
                              At(block.column, block.layer).begin_s, end});
}

void Load::Decode(const ReceivedBlock& received) {
  const BlockRef& block = received.block;
  std::vector<std::span<const uint8_t>> planes;
  for (const std::string& plane : received.planes) {
    planes.emplace_back(reinterpret_cast<const uint8_t*>(plane.data()), plane.size());
  }
  const double begin = Seconds();
  double final_seconds = 0;
  BlockResidual symbols;
  const absl::Status status = DecodePlanes(block, planes, &symbols, &final_seconds);
  const double end = Seconds();
  absl::MutexLock lock(&mutex_);
  ++events_;
  if (status.ok()) {
    result_.decode_s += end - begin - final_seconds;
    result_.final_s += final_seconds;
    if (rules_.needs_final) {
      residuals_.Put(block, std::move(symbols));
    } else {
      AddStreamed(block, end);
    }
  } else {
    if (rules_.needs_final) residuals_.Forget(block);
    Degrade(absl::StrCat("column ", block.column, " layer ", block.layer,
                         " was computed here: ", status.ToString()));
  }
  controller_.FinishDecode(block.column, block.layer, status.ok());
  Settle();
}

void Load::StartStream() {
  if (job_.stream == nullptr) {
    absl::MutexLock lock(&mutex_);
    controller_.ComputeAll();
    return;
  }
  worker_ =
      std::make_unique<DecodeWorker>([this](const ReceivedBlock& received) { Decode(received); });
  {
    absl::MutexLock lock(&mutex_);
    first_order_s_ = Seconds();
    seen_bytes_s_ = first_order_s_;
    controller_.StartStream(first_order_s_);
  }
  job_.stream->Start(this);
  absl::MutexLock lock(&mutex_);
  Order();
}

void Load::Order() {
  if (job_.stream == nullptr) return;
  std::vector<ItemRef> items;
  for (const BlockRef& block : controller_.TakeCancelled()) AddItems(block, job_.planes, &items);
  if (!items.empty()) job_.stream->Cancel(std::exchange(items, {}));
  for (const BlockRef& block : controller_.PickBlocks(Seconds()))
    AddItems(block, At(block.column, block.layer).want, &items);
  if (!items.empty()) job_.stream->Order(std::move(items), /*replace=*/false);
}

void Load::FitLevel() {
  const double now = Seconds();
  if (!controller_.streaming() || job_.slo <= absl::ZeroDuration() || job_.levels.size() < 2 ||
      now - fitted_s_ < kFitSeconds) {
    return;
  }
  fitted_s_ = now;
  const double rate = controller_.BytesPerSecond(now);
  const LoadState& state = controller_.state();
  double begun = 0;  // bytes still to come of blocks whose level is fixed
  std::vector<BlockRef> open;
  for (uint32_t t = 0; t < job_.problem.columns(); ++t) {
    for (uint32_t l = state.depth(t); l < job_.problem.layers; ++l) {
      if (!state.Wanted(t, l)) continue;
      const Received& received = At(t, l);
      if (received.have == 0) {
        open.push_back({t, l});
      } else {
        begun += static_cast<double>(job_.problem.bytes(t, l)) * (received.want - received.have) /
                 job_.planes;
      }
    }
  }
  LoadProblem rest = controller_.problem();
  rest.link_bytes_per_s = rate;
  rest.rtt_s = 0;
  const BusyTime seconds(rest);
  size_t level = job_.levels.size() - 1;
  for (; level > 0; --level) {
    double bytes = begun;
    for (const BlockRef& block : open) {
      const size_t i = size_t{block.column} * job_.problem.layers + block.layer;
      bytes += received_[i].want < job_.levels[level].planes
                   ? BytesOf(i)
                   : static_cast<double>(job_.levels[level].block_bytes[i]);
    }
    if (now + seconds(0, bytes) <= absl::ToDoubleSeconds(job_.slo)) break;
  }
  const uint32_t planes = job_.levels[level].planes;
  std::vector<ItemRef> dropped;  // ordered already
  for (const BlockRef& block : open) {
    Received& received = At(block.column, block.layer);
    for (uint32_t p = planes; p < received.want && controller_.UnderWay(block); ++p)
      dropped.push_back({block.column, block.layer, p});
    received.want = std::min(received.want, planes);
    controller_.SetBytes(
        block,
        static_cast<uint64_t>(BytesOf(size_t{block.column} * job_.problem.layers + block.layer)));
  }
  if (!dropped.empty()) job_.stream->Cancel(std::move(dropped));
}

double Load::BytesOf(size_t block) const {
  for (const LevelBytes& level : job_.levels) {
    if (level.planes == received_[block].want) return static_cast<double>(level.block_bytes[block]);
  }
  return static_cast<double>(job_.problem.block_bytes[block]);
}

void Load::CheckStall() {
  if (!controller_.streaming()) return;
  const uint64_t bytes = job_.stream->bytes_received();
  const double now = Seconds();
  if (bytes != seen_bytes_ || !controller_.WaitsForStream()) {
    seen_bytes_ = bytes;
    seen_bytes_s_ = now;
  } else if (now - seen_bytes_s_ > absl::ToDoubleSeconds(job_.stall_limit)) {
    GiveUpStream(absl::StrCat("no byte came for ", absl::FormatDuration(job_.stall_limit),
                              ", the rest was computed here"));
  }
}

absl::Status Load::ForSteps(uint32_t rows,
                            const std::function<absl::Status(uint32_t, uint32_t)>& step) {
  for (uint32_t done = 0; done < rows; done += job_.step_rows) {
    RETURN_IF_ERROR(job_.cancel.Check());
    RETURN_IF_ERROR(step(done, std::min(job_.step_rows, rows - done)));
    if (done + job_.step_rows < rows) Watch(static_cast<double>(done + job_.step_rows) / rows);
  }
  return absl::OkStatus();
}

absl::Status Load::Execute(const ComputeOp& op) {
  const size_t width = compute_->d_model();
  if (op.kind == ComputeOp::Kind::kQuery) {
    const auto rows = static_cast<uint32_t>(job_.query.size());
    if (query_hidden_.empty()) {
      query_hidden_.resize(rows * width);
      RETURN_IF_ERROR(compute_->Embed(job_.query, query_hidden_.data()));
    }
    RETURN_IF_ERROR(ForSteps(rows, [&](uint32_t row, uint32_t n) {
      return compute_->Project(op.layer, query_hidden_.data() + row * width, context() + row, n,
                               job_.cache);
    }));
    const bool last = op.layer + 1 == job_.problem.layers;
    return ForSteps(rows, [&](uint32_t row, uint32_t n) -> absl::Status {
      if (last && row + n < rows)
        return absl::OkStatus();  // only the last row makes the first token
      return compute_->Attend(op.layer, query_hidden_.data() + row * width, context() + row, n,
                              *job_.cache, last ? n - 1 : 0);
    });
  }
  const uint32_t begin = job_.problem.begin(op.column);
  const uint32_t rows = Rows(op.column);
  std::vector<float>& hidden = hidden_[op.column];
  if (hidden.empty()) {
    hidden.resize(size_t{rows} * width);
    RETURN_IF_ERROR(compute_->Embed(Tokens(op.column), hidden.data()));
  }
  if (op.kind == ComputeOp::Kind::kProject) {
    return ForSteps(rows, [&](uint32_t row, uint32_t n) {
      return compute_->Project(op.layer, hidden.data() + row * width, begin + row, n, job_.cache);
    });
  }
  return ForSteps(rows, [&](uint32_t row, uint32_t n) {
    return compute_->Attend(op.layer, hidden.data() + row * width, begin + row, n, *job_.cache, 0);
  });
}

void Load::Watch(double share) {
  {
    absl::MutexLock lock(&mutex_);
    const double now = Seconds();
    if (job_.stream != nullptr) controller_.OnBytes(now, job_.stream->bytes_received());
    if (share > 0) controller_.Progress(now, share);
    controller_.Tick(now);
    FitLevel();
    Order();
    CheckStall();
  }
  if (Seconds() - last_report_s_ > kReportSeconds) {
    last_report_s_ = Seconds();
    ReportProgress();
  }
}

void Load::ExecuteFinal(const ComputeOp& op) {
  const BlockRef block{op.column, op.layer};
  BlockResidual residual;
  bool below_computed = false;
  {
    absl::MutexLock lock(&mutex_);
    residual = residuals_.Take(block);
    below_computed = controller_.state().block(op.column, op.layer - 1) == BlockState::kComputed;
  }
  const double begin = Seconds();
  const absl::Status status =
      chains_.Finish(block, residual, below_computed, job_.problem.begin(op.column),
                     Tokens(op.column), compute_, job_.cache);
  const double end = Seconds();
  absl::MutexLock lock(&mutex_);
  result_.final_s += end - begin;
  if (status.ok()) {
    controller_.FinishOp(end, op);
    AddStreamed(block, end);
  } else {
    Degrade(absl::StrCat("column ", op.column, " layer ", op.layer,
                         " was computed here: ", status.ToString()));
    controller_.FailFinal(op);
  }
  Release();
  Settle();
}

void Load::Release() {
  for (uint32_t t = 0; t < job_.problem.columns(); ++t) {
    if (!controller_.state().column_complete(t)) continue;
    hidden_[t] = {};
    chains_.Release(t);
  }
}

void Load::ReportProgress() {
  if (!job_.progress) return;
  LoadProgress progress;
  {
    absl::MutexLock lock(&mutex_);
    const LoadState& state = controller_.state();
    progress.blocks_done = state.blocks_done();
    progress.blocks_total = state.blocks_total();
    for (uint32_t t = 0; t < job_.problem.columns() && job_.stream != nullptr; ++t) {
      for (uint32_t l = state.depth(t); l < job_.problem.layers; ++l) {
        if (state.block(t, l) == BlockState::kMissing)
          progress.bytes_total += job_.problem.bytes(t, l);
      }
    }
  }
  if (job_.stream != nullptr) progress.bytes_done = job_.stream->bytes_received();
  progress.bytes_total += progress.bytes_done;
  job_.progress(progress);
}

absl::StatusOr<LoadResult> Load::Run() {
  RETURN_IF_ERROR(job_.cache->Extend(context() + static_cast<uint32_t>(job_.query.size())));
  StartStream();
  absl::Status status;
  while (status.ok()) {
    status = job_.cancel.Check();
    if (!status.ok()) break;
    Watch(0);
    std::optional<ComputeOp> op;
    {
      absl::MutexLock lock(&mutex_);
      if (controller_.done()) break;
      op = controller_.PickOp(Seconds());
      if (rules_.whole_columns) Settle();  // the op may have closed its column
      Order();
      if (!op.has_value()) {
        const double begin = Seconds();
        const uint64_t seen = events_;
        const auto changed = [this, seen]()
                                 ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return events_ != seen; };
        mutex_.AwaitWithTimeout(absl::Condition(&changed), kPoll);
        result_.stall_s += Seconds() - begin;
        continue;
      }
    }
    if (op->kind == ComputeOp::Kind::kFinal) {
      ExecuteFinal(*op);
      continue;
    }
    const double begin = Seconds();
    status = Execute(*op);
    if (!status.ok()) break;
    const double end = Seconds();
    absl::MutexLock lock(&mutex_);
    controller_.FinishOp(end, *op);
    Release();
    Settle();
    if (op->kind == ComputeOp::Kind::kQuery) {
      result_.query_s += end - begin;
      result_.timeline.push_back({LoadEvent::Kind::kQuery, 0, op->layer, begin, end});
      continue;
    }
    result_.compute_s += end - begin;
    if (op->kind == ComputeOp::Kind::kProject) {
      ++result_.blocks_computed;
      result_.timeline.push_back({LoadEvent::Kind::kComputed, op->column, op->layer, begin, end});
    } else {  // ATTN belongs to the layer whose block it completes
      for (auto event = result_.timeline.rbegin(); event != result_.timeline.rend(); ++event) {
        if (event->kind == LoadEvent::Kind::kComputed && event->column == op->column &&
            event->layer == op->layer) {
          event->end_s = end;
          break;
        }
      }
    }
  }
  if (job_.stream != nullptr) job_.stream->Stop();
  // The pointer stays: the worker's last block looks at it.
  if (worker_ != nullptr) worker_->Stop();
  RETURN_IF_ERROR(status);
  ReportProgress();
  absl::MutexLock lock(&mutex_);
  result_.plan = controller_.first_plan();
  result_.migrations = controller_.migrations();
  result_.total_s = Seconds();
  result_.waiting_bytes = residuals_.peak_bytes();
  if (job_.stream != nullptr) {
    result_.bytes_fetched = job_.stream->bytes_received();
    if (last_item_s_ > 0) result_.stream_s = last_item_s_ - first_order_s_;
  }
  if (!job_.query.empty()) {
    const size_t width = compute_->d_model();
    result_.last_hidden.assign(query_hidden_.end() - static_cast<ptrdiff_t>(width),
                               query_hidden_.end());
  }
  std::stable_sort(result_.timeline.begin(), result_.timeline.end(),
                   [](const LoadEvent& a, const LoadEvent& b) { return a.end_s < b.end_s; });
  return std::move(result_);
}

}  // namespace

absl::StatusOr<LoadResult> RunLoad(const LoadJob& job, BlockCompute* compute, const Clock& clock) {
  if (job.context.empty())
    return absl::InvalidArgumentError("a context of 0 tokens, allowed: 1 or more");
  if (job.problem.tokens() != job.context.size() ||
      job.problem.block_bytes.size() != size_t{job.problem.columns()} * job.problem.layers) {
    return absl::InternalError("the load's problem does not fit its context");
  }
  if (job.stream != nullptr &&
      ((job.decoder == nullptr) == (job.residual == nullptr) || job.planes == 0)) {
    return absl::InternalError("a load with a stream needs one decoder, and planes");
  }
  if (job.stream != nullptr && job.residual != nullptr && !job.problem.first_layer_local) {
    return absl::InternalError("a residual codec's first layer is computed here");
  }
  return Load(job, compute, clock).Run();
}

}  // namespace sparkv
