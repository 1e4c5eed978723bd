#include "edge/load/simulator.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"

namespace sparkv {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kLongest = 1e5;          // simulated seconds
constexpr double kTickSeconds = 0.04;     // of a compute step: progress is seen so often
constexpr double kFrameBytes = 16 << 10;  // bytes are seen in such pieces
constexpr double kEpsilon = 1e-12;

class Simulation {
 public:
  Simulation(const LoadProblem& problem, LoadPolicy* policy, const SimulatedWorld& world)
      : world_(world),
        truth_(world.truth),
        controller_(problem, policy, world.rules),
        random_(world.seed),
        filled_(size_t{truth_.columns()} * truth_.layers, false) {}

  absl::StatusOr<SimulatedLoad> Run();

 private:
  struct Sent {
    BlockRef block;
    double begin_s, end_s, arrive_s;
    double bytes;
    bool cancelled = false;  // after some frames
  };
  struct Asked {
    BlockRef block;
    double at_server_s;
  };

  double BytesOf(const BlockRef& b) const {
    return static_cast<double>(truth_.bytes(b.column, b.layer));
  }
  void Note(SimulatedEvent::Kind kind, const BlockRef& block) {
    out_.events.push_back({kind, now_, block, {}});
  }
  void Fail(const std::string& what) {
    if (error_.empty()) error_ = absl::StrCat(what, " at ", now_, " s");
  }
  void Fill(const BlockRef& b) {
    const size_t i = size_t{b.column} * truth_.layers + b.layer;
    if (filled_[i]) Fail(absl::StrCat("block (", b.column, ", ", b.layer, ") was filled twice"));
    filled_[i] = true;
  }
  // Bytes at the edge now, in frames.
  uint64_t Received() const;
  void Order();
  void RunServer();
  void Arrive(const Sent& sent);
  void Decode();
  void Begin();
  void End();
  double Speed() const {
    return world_.speed.At(now_) * (decoding_.has_value() ? 1 - truth_.decode_share : 1);
  }
  void CheckLegal(const ComputeOp& op);

  const SimulatedWorld& world_;
  const LoadProblem& truth_;
  LoadController controller_;
  std::mt19937_64 random_;
  SimulatedLoad out_;
  std::string error_;
  double now_ = 0;

  std::deque<Asked> queue_;     // at the server, or on the way to it
  std::vector<Asked> recalls_;  // likewise
  std::deque<Sent> wire_;       // being sent, or on their way here
  double link_free_s_ = 0;
  double last_arrival_s_ = 0;
  double arrived_bytes_ = 0;
  bool ended_ = false;

  std::deque<BlockRef> to_decode_;
  std::optional<BlockRef> decoding_;
  double decoded_s_ = kNever;

  std::optional<ComputeOp> op_;
  double work_ = 0;  // of op_ in all
  double work_left_ = 0;
  double next_tick_s_ = 0;
  std::vector<bool> filled_;
};

uint64_t Simulation::Received() const {
  double bytes = arrived_bytes_;
  for (const Sent& sent : wire_) {
    const double part =
        std::min(sent.bytes, world_.link.Amount(sent.begin_s, now_ - world_.rtt_s / 2));
    if (part <= 0) break;
    bytes += part < sent.bytes
                 ? kFrameBytes * static_cast<double>(static_cast<uint64_t>(part / kFrameBytes))
                 : sent.bytes;
  }
  return static_cast<uint64_t>(bytes);
}

void Simulation::Order() {
  for (const BlockRef& block : controller_.TakeCancelled()) {
    Note(SimulatedEvent::Kind::kCancelled, block);
    recalls_.push_back({block, now_ + world_.rtt_s / 2});
  }
  controller_.OnBytes(now_, Received());
  for (const BlockRef& block : controller_.PickBlocks(now_)) {
    Note(SimulatedEvent::Kind::kOrdered, block);
    queue_.push_back({block, now_ + world_.rtt_s / 2});
  }
  double under_way = 0;
  for (const Asked& queued : queue_) under_way += BytesOf(queued.block);
  for (const Sent& sent : wire_) under_way += sent.bytes;
  out_.most_under_way = std::max(out_.most_under_way, under_way);
}

void Simulation::RunServer() {
  for (auto recall = recalls_.begin(); recall != recalls_.end();) {
    if (recall->at_server_s > now_ + kEpsilon) {
      ++recall;
      continue;
    }
    std::erase_if(queue_, [&](const Asked& queued) { return queued.block == recall->block; });
    // The one being sent stops after the frame that is out.
    if (!wire_.empty() && wire_.back().block == recall->block && wire_.back().end_s > now_) {
      Sent& sent = wire_.back();
      const double frames = std::floor(world_.link.Amount(sent.begin_s, now_) / kFrameBytes) + 1;
      if (frames * kFrameBytes < sent.bytes) {
        sent.bytes = frames * kFrameBytes;
        const double end_s = world_.link.FinishTime(sent.begin_s, sent.bytes);
        out_.link_busy_s += std::min(end_s, kLongest) - std::min(sent.end_s, kLongest);
        sent.end_s = link_free_s_ = end_s;
        sent.arrive_s = last_arrival_s_ = end_s + world_.rtt_s / 2;
        sent.cancelled = true;
      }
    }
    recall = recalls_.erase(recall);
  }
  while (!ended_ && !queue_.empty() && link_free_s_ <= now_ + kEpsilon &&
         queue_.front().at_server_s <= now_ + kEpsilon) {
    const BlockRef block = queue_.front().block;
    queue_.pop_front();
    Sent sent{block, now_, world_.link.FinishTime(now_, BytesOf(block)), 0, BytesOf(block)};
    link_free_s_ = sent.end_s;
    const double jitter = world_.jitter_s > 0
                              ? std::uniform_real_distribution<double>(0, world_.jitter_s)(random_)
                              : 0;
    last_arrival_s_ = std::max(last_arrival_s_, sent.end_s + world_.rtt_s / 2 + jitter);
    sent.arrive_s = last_arrival_s_;
    wire_.push_back(sent);
    out_.bytes += truth_.bytes(block.column, block.layer);
    out_.link_busy_s += std::min(sent.end_s, kLongest) - sent.begin_s;
  }
}

void Simulation::Arrive(const Sent& sent) {
  arrived_bytes_ += sent.bytes;
  if (sent.cancelled) return controller_.OnBytes(now_, Received());
  Note(SimulatedEvent::Kind::kArrived, sent.block);
  controller_.OnBytes(now_, Received());
  if (!controller_.ClaimForDecode(now_, sent.block.column, sent.block.layer)) return;
  to_decode_.push_back(sent.block);
}

void Simulation::Decode() {
  if (decoding_.has_value() && decoded_s_ <= now_ + kEpsilon) {
    const BlockRef block = *decoding_;
    decoding_.reset();
    Note(SimulatedEvent::Kind::kDecoded, block);
    const bool closed = block.layer >= controller_.state().closed(block.column);
    controller_.FinishDecode(block.column, block.layer, true);
    if (!world_.rules.needs_final && !closed) {
      Fill(block);
      ++out_.streamed;
    }
  }
  if (!decoding_.has_value() && !to_decode_.empty()) {
    const auto lowest =
        std::min_element(to_decode_.begin(), to_decode_.end(),
                         [](const BlockRef& a, const BlockRef& b) { return a.layer < b.layer; });
    decoding_ = *lowest;
    to_decode_.erase(lowest);
    decoded_s_ = world_.speed.FinishTime(now_, truth_.DecodeSeconds(BytesOf(*decoding_)));
  }
}

void Simulation::CheckLegal(const ComputeOp& op) {
  const LoadState& state = controller_.state();
  const auto have = [&](uint32_t t, uint32_t l) {
    return bool{filled_[size_t{t} * truth_.layers + l]};
  };
  switch (op.kind) {
    case ComputeOp::Kind::kProject:
      if (state.hidden_depth(op.column) != op.layer) Fail("PROJ without its hidden rows");
      return;
    case ComputeOp::Kind::kAttend:
      if (state.hidden_depth(op.column) != op.layer) Fail("ATTN without its hidden rows");
      for (uint32_t t = 0; t <= op.column; ++t) {
        if (!have(t, op.layer)) Fail("ATTN without K and V of an earlier column");
      }
      return;
    case ComputeOp::Kind::kFinal:
      if (op.layer == 0 || !have(op.column, op.layer - 1)) Fail("FINAL without the layer below");
      return;
    case ComputeOp::Kind::kQuery:
      for (uint32_t t = 0; t < truth_.columns(); ++t) {
        if (!have(t, op.layer)) Fail("QUERY of a layer that is not complete");
      }
      return;
  }
}

void Simulation::Begin() {
  if (op_.has_value()) return;
  op_ = controller_.PickOp(now_);
  if (!op_.has_value()) return;
  CheckLegal(*op_);
  out_.events.push_back({SimulatedEvent::Kind::kBegan, now_, {op_->column, op_->layer}, *op_});
  work_ = work_left_ = OpSeconds(truth_, *op_);
  out_.compute_busy_s += work_;
}

void Simulation::End() {
  if (!op_.has_value() || work_left_ > kEpsilon) return;
  const ComputeOp op = *op_;
  op_.reset();
  out_.events.push_back({SimulatedEvent::Kind::kEnded, now_, {op.column, op.layer}, op});
  if (op.kind == ComputeOp::Kind::kProject) {
    Fill({op.column, op.layer});
    ++out_.computed;
  } else if (op.kind == ComputeOp::Kind::kFinal) {
    Fill({op.column, op.layer});
    ++out_.streamed;
  }
  controller_.FinishOp(now_, op);
}

absl::StatusOr<SimulatedLoad> Simulation::Run() {
  out_.first_plan = controller_.first_plan();
  controller_.StartStream(0);
  while (!controller_.done() && error_.empty()) {
    if (!ended_ && now_ >= world_.link_ends_s) {
      ended_ = true;
      queue_.clear();
      wire_.clear();
      controller_.EndStream(now_);
    }
    RunServer();
    while (!wire_.empty() && wire_.front().arrive_s <= now_ + kEpsilon) {
      const Sent sent = wire_.front();
      wire_.pop_front();
      Arrive(sent);
    }
    Decode();
    End();
    Order();
    Begin();
    Order();
    RunServer();
    if (controller_.done()) break;

    double next = next_tick_s_ = std::max(next_tick_s_, now_ + kTickSeconds);
    if (!ended_) next = std::min(next, std::max(world_.link_ends_s, now_));
    if (!queue_.empty()) {
      const double at = std::max(queue_.front().at_server_s, link_free_s_);
      if (at > now_) next = std::min(next, at);
    }
    if (!wire_.empty()) next = std::min(next, wire_.front().arrive_s);
    if (decoding_.has_value()) next = std::min(next, decoded_s_);
    next = std::min(next, world_.speed.NextChange(now_));
    const double speed = Speed();
    if (op_.has_value() && speed > 0) next = std::min(next, now_ + work_left_ / speed);
    if (next > kLongest) {
      return absl::DeadlineExceededError(
          absl::StrCat("the load does not end: ", controller_.state().blocks_done(), " of ",
                       controller_.state().blocks_total(), " blocks after ", now_, " s"));
    }
    if (op_.has_value()) {
      work_left_ = std::max(0.0, work_left_ - speed * (next - now_));
      if (work_left_ <= 1e-9 * work_) work_left_ = 0;
    } else {
      out_.compute_idle_s += next - now_;
    }
    now_ = next;
    if (now_ >= next_tick_s_ - kEpsilon) {
      next_tick_s_ = now_ + kTickSeconds;
      controller_.OnBytes(now_, Received());
      if (op_.has_value() && work_ > 0) controller_.Progress(now_, 1 - work_left_ / work_);
      controller_.Tick(now_);
    }
  }
  if (!error_.empty()) return absl::InternalError(error_);
  out_.ttft_s = now_;
  out_.migrations = controller_.migrations();
  return std::move(out_);
}

}  // namespace

absl::StatusOr<SimulatedLoad> SimulateLoad(const LoadProblem& problem, LoadPolicy* policy,
                                           const SimulatedWorld& world) {
  return Simulation(problem, policy, world).Run();
}

}  // namespace sparkv
