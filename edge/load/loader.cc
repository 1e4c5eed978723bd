#include "edge/load/loader.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "common/codec/column_decode.h"
#include "edge/load/decode_worker.h"
#include "edge/load/load_state.h"
#include "edge/load/residual_blocks.h"

namespace sparkv {
namespace {

constexpr absl::Duration kPoll =
    absl::Milliseconds(20);  // cancellation and stalls are noticed within this
// The link's rate now is taken over at least this long and this much: frames come in pieces of up
// to 256 KiB.
constexpr double kRateSeconds = 0.5;
constexpr uint64_t kRateBytes = 512 << 10;
constexpr double kFitSeconds = 0.1;  // between two looks at the level

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
        plan_(job.policy->Plan(job.problem)),
        rules_(RulesOf(job)),
        state_(job.problem.columns(), job.problem.layers, plan_.depth, !job.query.empty(),
               plan_.pipelined_query, rules_),
        hidden_(job.problem.columns()),
        received_(size_t{job.problem.columns()} * job.problem.layers),
        ordered_(received_.size(), false),
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
  struct RateSample {
    double at_s;
    uint64_t bytes;
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
  // Of (t, l) and, where columns are whole, of all blocks above it.
  std::vector<ItemRef> ItemsFrom(const BlockRef& block) const;
  std::vector<ItemRef> ItemsOf(const BlockRef& block) const;

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
  // Takes blocks from the end of the stream when compute has nothing else to do; true when a depth
  // grew.
  bool Steal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The same where columns are whole: takes all that misses of a column.
  bool StealColumn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SampleRate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double LinkRate() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a block is missing that only the stream will bring.
  bool WaitsForStream() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of a block at the level that it comes at.
  double BytesOf(size_t block) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lowers the level of what has not begun to come when it would come too late. Returns the items
  // that are of no use then.
  std::vector<ItemRef> FitLevel() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckStall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Execute(const ComputeOp& op);
  // Compute takes a block: the stream need not bring it, nor what is above it in a whole column.
  void CancelFrom(const BlockRef& block);
  // Frees what complete columns need no more.
  void Release() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // FINAL. A block that cannot be finished is computed.
  void ExecuteFinal(const ComputeOp& op);
  absl::Status ForSteps(uint32_t rows, const std::function<absl::Status(uint32_t, uint32_t)>& step);
  void ReportProgress();

  const LoadJob& job_;
  BlockCompute* compute_;
  const Clock& clock_;
  const absl::Duration begin_;
  const LoadPlan plan_;
  const CodecRules rules_;

  absl::Mutex mutex_;
  LoadState state_ ABSL_GUARDED_BY(mutex_);
  bool streaming_ ABSL_GUARDED_BY(mutex_) = false;  // items may still come
  uint64_t events_ ABSL_GUARDED_BY(mutex_) = 0;     // grows with each event of the stream
  std::vector<std::vector<float>>
      hidden_;  // [columns] of [tokens][d_model], from the first op of a column to its last
  std::vector<float> query_hidden_;                         // [query][d_model]
  std::vector<Received> received_ ABSL_GUARDED_BY(mutex_);  // [columns][layers]
  std::vector<bool> ordered_;  // [columns][layers], but for what was cancelled; of this thread
  ResidualBlocks residuals_ ABSL_GUARDED_BY(mutex_);
  ColumnChains chains_;                                   // of the loading thread
  std::vector<std::unique_ptr<ColumnChain>> own_chains_;  // of the worker, when nothing predicts
  std::deque<RateSample> rate_ ABSL_GUARDED_BY(mutex_);
  double first_order_s_ = 0;
  double last_item_s_ ABSL_GUARDED_BY(mutex_) = 0;
  double fitted_s_ = 0;  // when FitLevel last looked
  uint64_t seen_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  double seen_bytes_s_ ABSL_GUARDED_BY(mutex_) = 0;
  LoadResult result_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<DecodeWorker> worker_;
};

std::vector<ItemRef> Load::ItemsOf(const BlockRef& block) const {
  std::vector<ItemRef> items;
  for (uint32_t p = 0; p < job_.planes; ++p) items.push_back({block.column, block.layer, p});
  return items;
}

std::vector<ItemRef> Load::ItemsFrom(const BlockRef& block) const {
  std::vector<ItemRef> items = ItemsOf(block);
  for (uint32_t l = block.layer + 1; rules_.whole_columns && l < job_.problem.layers; ++l) {
    for (const ItemRef& item : ItemsOf({block.column, l})) items.push_back(item);
  }
  return items;
}

void Load::Degrade(const std::string& reason) {
  constexpr size_t kMaxReasons = 16;  // a stream full of errors needs no list of them all
  if (result_.degraded.size() < kMaxReasons) result_.degraded.push_back(reason);
}

void Load::GiveUpStream(const std::string& reason) {
  if (!streaming_) return;
  streaming_ = false;
  if (state_.blocks_done() < state_.blocks_total()) Degrade(reason);
  state_.ComputeAll();
  Settle();
}

void Load::Settle() {
  if (!rules_.needs_final || worker_ == nullptr) return;
  residuals_.Prune(state_);
  for (ReceivedBlock& block : residuals_.Admit(&state_)) worker_->Post(std::move(block));
}

void Load::OnItem(const ItemRef& item, std::string bytes) {
  absl::MutexLock lock(&mutex_);
  ++events_;
  // Items come one after the other: this one has been on its way since the last.
  const double begin = std::max(first_order_s_, last_item_s_);
  last_item_s_ = Seconds();
  if (item.column >= job_.problem.columns() || item.layer >= job_.problem.layers) return;
  if (!state_.Wanted(item.column, item.layer)) return;  // compute came first
  Received& received = At(item.column, item.layer);
  if (item.plane >= received.want) return;
  if (received.planes.empty()) {
    received.planes.resize(received.want);
    received.begin_s = begin;
  }
  if (!received.planes[item.plane].empty()) return;
  received.planes[item.plane] = std::move(bytes);
  if (++received.have < received.want || !state_.ClaimForDecode(item.column, item.layer)) return;
  ReceivedBlock complete{{item.column, item.layer}, std::move(received.planes)};
  if (rules_.needs_final) {
    residuals_.Receive(std::move(complete));
    Settle();
  } else {
    worker_->Post(std::move(complete));
  }
}

void Load::OnItemFailed(const ItemRef& item, const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    ++events_;
    if (item.column >= job_.problem.columns() || item.layer >= job_.problem.layers) return;
    if (!state_.Wanted(item.column, item.layer)) return;
    if (item.plane >= At(item.column, item.layer).want) return;  // it is of no use any more
    Degrade(absl::StrCat("column ", item.column, " layer ", item.layer,
                         " was computed here: ", status.ToString()));
    state_.MustCompute(item.column, item.layer);
    At(item.column, item.layer) = {.want = job_.planes};
    Settle();
  }
  job_.stream->Cancel(ItemsFrom({item.column, item.layer}));  // its other planes are of no use
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
  state_.FinishDecode(block.column, block.layer, status.ok());
  Settle();
}

void Load::StartStream() {
  if (job_.stream == nullptr || plan_.order.empty()) {
    absl::MutexLock lock(&mutex_);
    // What the plan wanted to stream cannot come.
    if (job_.stream == nullptr) state_.ComputeAll();
    return;
  }
  worker_ =
      std::make_unique<DecodeWorker>([this](const ReceivedBlock& received) { Decode(received); });
  std::vector<BlockRef> blocks = plan_.order;
  if (plan_.work_conserving) {
    // A stream that is through early goes on with what compute would reach last. Compute cancels
    // what it takes.
    for (uint32_t t = job_.problem.columns(); t-- > 0;) {
      for (uint32_t i = 1; i < plan_.depth[t]; ++i) {
        const uint32_t l = rules_.whole_columns ? i : plan_.depth[t] - i;
        if (job_.problem.bytes(t, l) > 0) blocks.push_back({t, l});
      }
    }
  }
  std::erase_if(blocks,
                [this](const BlockRef& block) { return block.layer < job_.problem.least_depth(); });
  std::vector<ItemRef> items;
  for (const BlockRef& block : blocks) {
    ordered_[size_t{block.column} * job_.problem.layers + block.layer] = true;
    for (const ItemRef& item : ItemsOf(block)) items.push_back(item);
  }
  {
    absl::MutexLock lock(&mutex_);
    streaming_ = true;
    first_order_s_ = Seconds();
    rate_.push_back({first_order_s_, 0});
    seen_bytes_s_ = first_order_s_;
  }
  job_.stream->Start(this);
  job_.stream->Order(std::move(items), /*replace=*/false);
}

void Load::SampleRate() {
  if (!streaming_) return;
  const RateSample now{Seconds(), job_.stream->bytes_received()};
  if (!rate_.empty() && rate_.back().bytes == now.bytes) {
    rate_.back().at_s = std::max(rate_.back().at_s, now.at_s);
  } else {
    rate_.push_back(now);
  }
  // The second sample is old enough to begin the window: the first is not needed.
  while (rate_.size() > 2 && now.at_s - rate_[1].at_s >= kRateSeconds &&
         now.bytes - rate_[1].bytes >= kRateBytes) {
    rate_.pop_front();
  }
}

double Load::LinkRate() const {
  const double elapsed = Seconds() - first_order_s_;
  if (elapsed < kRateSeconds) return job_.problem.link_bytes_per_s;
  if (rate_.size() < 2) return 0;  // nothing came yet
  return static_cast<double>(rate_.back().bytes - rate_.front().bytes) /
         std::max(rate_.back().at_s - rate_.front().at_s, 1e-3);
}

bool Load::Steal() {
  if (!plan_.work_conserving || !streaming_) return false;
  if (rules_.whole_columns) return StealColumn();
  // When each missing block will come, at the rate seen so far (or the problem's, at first).
  const double rate = LinkRate();
  double ahead = 0;
  double best_gain = 0;
  std::optional<BlockRef> best;
  for (const BlockRef& block : plan_.order) {
    if (state_.block(block.column, block.layer) != BlockState::kMissing) continue;
    ahead += static_cast<double>(job_.problem.bytes(block.column, block.layer));
    const std::optional<uint32_t> gap = state_.Gap(block.column, job_.problem.layers);
    if (gap != block.layer) continue;  // one below it comes first
    const double wait = rate > 0 ? ahead / rate : 1e9;
    const uint32_t rows = job_.problem.column_tokens[block.column];
    const double cost = job_.problem.compute.Project(rows) +
                        (block.layer - state_.hidden_depth(block.column)) *
                            job_.problem.compute.Attend(job_.problem.begin(block.column), rows);
    bool ready = true;  // the ATTN below it must not wait for the stream either
    for (uint32_t l = state_.hidden_depth(block.column); ready && l < block.layer; ++l) {
      for (uint32_t t = 0; ready && t <= block.column; ++t) ready = state_.present(t, l);
    }
    // Saving its bytes is worth the seconds that the link would take, if compute gets there well
    // before it.
    const double gain = wait - 1.5 * cost;
    if (ready && gain > best_gain) {
      best_gain = gain;
      best = block;
    }
  }
  if (!best.has_value()) return false;
  state_.MustCompute(best->column, best->layer);
  return true;
}

bool Load::StealColumn() {
  const double rate = LinkRate();
  double ahead = 0;
  std::vector<double> wait(job_.problem.columns(), 0);  // until the last missing block comes
  for (const BlockRef& block : plan_.order) {
    if (!state_.Wanted(block.column, block.layer)) continue;
    ahead += static_cast<double>(job_.problem.bytes(block.column, block.layer));
    wait[block.column] = rate > 0 ? ahead / rate : 1e9;
  }
  double best_gain = 0;
  std::optional<BlockRef> best;
  for (uint32_t t = 0; t < job_.problem.columns(); ++t) {
    const std::optional<uint32_t> gap = state_.Gap(t, job_.problem.layers);
    if (gap.has_value() && wait[t] > 0) {
      const double gain =
          wait[t] - 1.5 * (PrefixSeconds(job_.problem, t, job_.problem.layers) -
                           state_.hidden_depth(t) *
                               job_.problem.compute.Attend(job_.problem.begin(t), Rows(t)) -
                           *gap * job_.problem.compute.Project(Rows(t)));
      if (gain > best_gain) {
        best_gain = gain;
        best = BlockRef{t, *gap};
      }
    }
    // ATTN of later columns would wait for the stream.
    if (!state_.column_complete(t)) break;
  }
  if (!best.has_value()) return false;
  state_.MustCompute(best->column, best->layer);
  Settle();
  return true;
}

bool Load::WaitsForStream() const {
  for (uint32_t t = 0; t < job_.problem.columns(); ++t) {
    for (uint32_t l = state_.depth(t); l < job_.problem.layers; ++l) {
      if (state_.block(t, l) == BlockState::kMissing) return true;
    }
  }
  return false;
}

std::vector<ItemRef> Load::FitLevel() {
  std::vector<ItemRef> dropped;
  const double now = Seconds();
  if (!streaming_ || job_.slo <= absl::ZeroDuration() || job_.levels.size() < 2 ||
      now - fitted_s_ < kFitSeconds) {
    return dropped;
  }
  fitted_s_ = now;
  const double rate = LinkRate();
  if (rate <= 0) return dropped;  // nothing came yet
  double begun = 0;               // bytes still to come of blocks whose level is fixed
  std::vector<BlockRef> open;
  for (const BlockRef& block : plan_.order) {
    if (!state_.Wanted(block.column, block.layer)) continue;
    const Received& received = At(block.column, block.layer);
    if (received.have == 0) {
      open.push_back(block);
    } else {
      begun += static_cast<double>(job_.problem.bytes(block.column, block.layer)) *
               (received.want - received.have) / job_.planes;
    }
  }
  LoadProblem rest = job_.problem;
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
  for (const BlockRef& block : open) {
    Received& received = At(block.column, block.layer);
    for (uint32_t p = planes; p < received.want; ++p)
      dropped.push_back({block.column, block.layer, p});
    received.want = std::min(received.want, planes);
  }
  return dropped;
}

double Load::BytesOf(size_t block) const {
  for (const LevelBytes& level : job_.levels) {
    if (level.planes == received_[block].want) return static_cast<double>(level.block_bytes[block]);
  }
  return static_cast<double>(job_.problem.block_bytes[block]);
}

void Load::CheckStall() {
  if (!streaming_) return;
  const uint64_t bytes = job_.stream->bytes_received();
  const double now = Seconds();
  if (bytes != seen_bytes_ || !WaitsForStream()) {
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

void Load::CancelFrom(const BlockRef& block) {
  const bool above = rules_.whole_columns && block.layer > 0;
  const uint32_t end = above ? job_.problem.layers : block.layer + 1;
  std::vector<ItemRef> items;
  for (uint32_t l = block.layer; l < end; ++l) {
    const size_t i = size_t{block.column} * job_.problem.layers + l;
    if (!ordered_[i]) continue;
    ordered_[i] = false;
    for (const ItemRef& item : ItemsOf({block.column, l})) items.push_back(item);
  }
  if (!items.empty()) job_.stream->Cancel(std::move(items));
}

void Load::ExecuteFinal(const ComputeOp& op) {
  const BlockRef block{op.column, op.layer};
  BlockResidual residual;
  bool below_computed = false;
  {
    absl::MutexLock lock(&mutex_);
    residual = residuals_.Take(block);
    below_computed = state_.block(op.column, op.layer - 1) == BlockState::kComputed;
  }
  const double begin = Seconds();
  const absl::Status status =
      chains_.Finish(block, residual, below_computed, job_.problem.begin(op.column),
                     Tokens(op.column), compute_, job_.cache);
  const double end = Seconds();
  absl::MutexLock lock(&mutex_);
  result_.final_s += end - begin;
  if (status.ok()) {
    state_.Finish(op);
    AddStreamed(block, end);
  } else {
    Degrade(absl::StrCat("column ", op.column, " layer ", op.layer,
                         " was computed here: ", status.ToString()));
    state_.FailFinal(op.column, op.layer);
  }
  Release();
  Settle();
}

void Load::Release() {
  for (uint32_t t = 0; t < job_.problem.columns(); ++t) {
    if (!state_.column_complete(t)) continue;
    hidden_[t] = {};
    chains_.Release(t);
  }
}

void Load::ReportProgress() {
  if (!job_.progress) return;
  LoadProgress progress;
  {
    absl::MutexLock lock(&mutex_);
    progress.blocks_done = state_.blocks_done();
    progress.blocks_total = state_.blocks_total();
  }
  if (job_.stream != nullptr) progress.bytes_done = job_.stream->bytes_received();
  for (const BlockRef& block : plan_.order)
    progress.bytes_total += job_.problem.bytes(block.column, block.layer);
  progress.bytes_total = std::max(progress.bytes_total, progress.bytes_done);
  job_.progress(progress);
}

absl::StatusOr<LoadResult> Load::Run() {
  RETURN_IF_ERROR(job_.cache->Extend(context() + static_cast<uint32_t>(job_.query.size())));
  StartStream();
  absl::Status status;
  double last_report = -1;
  while (status.ok()) {
    status = job_.cancel.Check();
    if (!status.ok()) break;
    if (Seconds() - last_report > 0.1) {
      last_report = Seconds();
      ReportProgress();
    }
    std::optional<ComputeOp> op;
    std::vector<ItemRef> dropped;
    {
      absl::MutexLock lock(&mutex_);
      if (state_.done()) break;
      SampleRate();
      dropped = FitLevel();
    }
    if (!dropped.empty()) job_.stream->Cancel(std::move(dropped));
    {
      absl::MutexLock lock(&mutex_);
      CheckStall();
      op = state_.NextOp();
      if (!op.has_value() && Steal()) op = state_.NextOp();
      if (rules_.whole_columns) Settle();  // the op may have closed its column
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
    if (op->kind == ComputeOp::Kind::kProject) CancelFrom({op->column, op->layer});
    const double begin = Seconds();
    status = Execute(*op);
    if (!status.ok()) break;
    const double end = Seconds();
    absl::MutexLock lock(&mutex_);
    state_.Finish(*op);
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
  result_.plan = plan_;
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
