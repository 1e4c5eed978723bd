#include "edge/context_load.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/codec/codec.h"
#include "common/codec/dec_aatc.h"
#include "common/llm/token_rows.h"
#include "edge/load/caching_stream.h"
#include "edge/load/cost_model.h"
#include "edge/load/policy.h"
#include "edge/policy_name.h"

namespace sparkv {
namespace {

constexpr uint32_t kCalibrationTokens = 2048;
// Fetches of less say more about latency than about the rate.
constexpr uint64_t kMinBytesToLearn = 256 << 10;
constexpr uint64_t kMinRowsToLearn = kColumnTokens;  // of FINAL

// Rows between two looks at cancellation, the link and the plan: as many as are predicted to take
// 40 ms, 64 to 512 (each step expands the layer's weights anew).
uint32_t StepRows(const Decoder& decoder, const ComputeCosts& costs, uint32_t context_tokens) {
  constexpr double kStepSeconds = 0.04;
  constexpr uint32_t kLeast = 64, kMost = 512;
  if (costs.dense_row <= 0)  // nothing was measured
    return std::clamp(decoder.StepRows(context_tokens), kLeast, kMost);
  uint32_t rows = kMost;
  while (rows > kLeast && costs.Attend(context_tokens, rows) > kStepSeconds) rows /= 2;
  return rows;
}

v1::Migrations ToProto(const Migrations& migrations) {
  v1::Migrations out;
  out.set_to_compute_slow_link(migrations.to_compute_slow_link);
  out.set_to_compute_idle(migrations.to_compute_idle);
  out.set_to_compute_failed(migrations.to_compute_failed);
  out.set_to_stream(migrations.to_stream);
  out.set_cancelled(migrations.cancelled);
  out.set_replans(migrations.replans);
  return out;
}

v1::BlockEvent::Kind ToProto(LoadEvent::Kind kind) {
  switch (kind) {
    case LoadEvent::Kind::kStreamed:
      return v1::BlockEvent::STREAMED;
    case LoadEvent::Kind::kComputed:
      return v1::BlockEvent::COMPUTED;
    case LoadEvent::Kind::kQuery:
      return v1::BlockEvent::QUERY;
  }
  return v1::BlockEvent::KIND_UNSPECIFIED;
}

}  // namespace

absl::Status ContextLoader::Calibrate(KvDtype dtype) {
  const ModelConfig& config = decoder_->model().config();
  // A pool of its own: the budget may be smaller, and nothing that is loaded should go for this.
  const KvGeometry geometry = config.Geometry(dtype);
  ASSIGN_OR_RETURN(
      std::shared_ptr<KvPagePool> pool,
      KvPagePool::Create(geometry, geometry.token_bytes() * (kCalibrationTokens + kPageTokens)));
  ASSIGN_OR_RETURN(costs_, MeasureComputeCosts(&compute_, std::move(pool), config.vocabulary));
  return absl::OkStatus();
}

void ContextLoader::Learn(const LoadProblem& problem, const LoadResult& result, CodecCosts* costs) {
  uint64_t rows = 0;  // of streamed blocks
  for (const LoadEvent& event : result.timeline) {
    if (event.kind == LoadEvent::Kind::kStreamed) rows += problem.column_tokens[event.column];
  }
  if (rows >= kMinRowsToLearn && result.final_s > 0)
    costs->final_row = result.final_s / static_cast<double>(rows);
  if (result.bytes_fetched < kMinBytesToLearn || result.stream_s <= 0) return;
  link_.bytes_per_s = static_cast<double>(result.bytes_fetched) / result.stream_s;
  costs->decode_s_per_byte = result.decode_s / static_cast<double>(result.bytes_fetched);
}

absl::StatusOr<const ResidualDecoder*> ContextLoader::ResidualFor(
    const std::shared_ptr<const CodecProfile>& profile, const KvGeometry& geometry) {
  if (residual_ != nullptr && profile->digest() == profile_digest_) return residual_.get();
  const KvGeometry& made_for = profile->shape().geometry;
  if (made_for.layers != geometry.layers || made_for.kv_heads != geometry.kv_heads ||
      made_for.head_dim != geometry.head_dim) {
    return absl::FailedPreconditionError(absl::StrCat("the codec's profile is for ",
                                                      made_for.ToString(), ", the model has ",
                                                      geometry.ToString()));
  }
  const Model& model = decoder_->model();
  ASSIGN_OR_RETURN(
      std::unique_ptr<ResidualDecoder> made,
      MakeResidualDecoder(profile, {.width = model.config().d_model,
                                    .rows = [&model](std::span<const int32_t> tokens, float* rows) {
                                      return TokenRows(model, tokens, rows);
                                    }}));
  ASSIGN_OR_RETURN(const double final_row, MeasureFinalRow(*made, geometry, &compute_));
  codec_costs_[std::string(made->info().name)].final_row = final_row;
  residual_ = std::move(made);
  profile_digest_ = profile->digest();
  return residual_.get();
}

void ContextLoader::FillStream(const Manifest& manifest, const HeldPlanes& held,
                               const CodecCosts& costs, LoadJob* job) const {
  LoadProblem& problem = job->problem;
  const CodecInfo& info = job->residual != nullptr ? job->residual->info() : job->decoder->info();
  problem.first_layer_local = info.computes_first_layer;
  // Predictions are made from the first plane, so errors of a computed base die out at its level
  // only, and where the server found them to.
  problem.whole_columns = job->residual != nullptr && job->residual->predicts() &&
                          (job->planes > 1 || manifest.needs_streamed_base);
  for (uint32_t t = 0; t < problem.columns(); ++t) {
    for (uint32_t l = 0; l < problem.layers; ++l) {
      uint64_t bytes = 0;
      for (uint32_t p = 0; p < job->planes; ++p) {
        if (!held.Contains({t, l, p})) bytes += manifest.item(t, l, p).bytes;
      }
      // 0 would say that it cannot be streamed.
      problem.block_bytes[size_t{t} * problem.layers + l] =
          l < problem.least_depth() ? 0 : std::max<uint64_t>(1, bytes);
    }
  }
  problem.link_bytes_per_s = link_.bytes_per_s;
  problem.rtt_s = link_.rtt_s;
  problem.decode_s_per_byte = costs.decode_s_per_byte;
  problem.decode_share = 1.0 / decoder_->threads();
  problem.final_row = costs.final_row;
}

uint32_t ContextLoader::ChooseLevel(const Manifest& manifest, const HeldPlanes& held,
                                    const CodecCosts& costs, absl::Duration left,
                                    LoadJob* job) const {
  const CodecInfo& info = job->residual != nullptr ? job->residual->info() : job->decoder->info();
  for (size_t i = info.levels.size(); i-- > 0;) {
    job->planes = static_cast<uint32_t>(info.levels[i].planes);
    FillStream(manifest, held, costs, job);
    const LoadPlan plan = MakeStreamPolicy()->Plan(job->problem);
    if (i > 0 && plan.predicted_s > absl::ToDoubleSeconds(left)) continue;
    // Lower ones, should the link turn out slower.
    job->slo = left;
    LoadJob lower = {.problem = job->problem, .decoder = job->decoder, .residual = job->residual};
    for (size_t j = 0; j <= i; ++j) {
      lower.planes = static_cast<uint32_t>(info.levels[j].planes);
      FillStream(manifest, held, costs, &lower);
      job->levels.push_back({.planes = lower.planes, .block_bytes = lower.problem.block_bytes});
    }
    return static_cast<uint32_t>(info.levels[i].level);
  }
  return 0;
}

absl::StatusOr<ContextLoadResult> ContextLoader::Load(const ContextLoadRequest& request,
                                                      KvCache* cache, std::vector<float>* logits) {
  const ModelConfig& config = decoder_->model().config();
  const std::vector<int32_t>& tokens = request.context->entry.tokens;
  const auto context_tokens = static_cast<uint32_t>(tokens.size());
  ContextLoadResult out;
  out.policy = request.policy;

  decoder_->set_dense_from(context_tokens);
  LoadJob job{.context = tokens, .query = request.query, .cache = cache, .cancel = request.cancel};
  job.step_rows = StepRows(*decoder_, costs_, context_tokens);
  LoadProblem& problem = job.problem;
  problem.layers = config.layers;
  problem.compute = costs_;
  problem.query_tokens = static_cast<uint32_t>(request.query.size());
  for (uint32_t t = 0; t < ColumnCount(context_tokens); ++t) {
    problem.column_tokens.push_back(ColumnTokens(context_tokens, t));
  }
  problem.block_bytes.resize(size_t{problem.columns()} * problem.layers);

  std::unique_ptr<ItemStream> stream;
  bool streams =
      server_ != nullptr && request.context->manifest && request.policy != v1::POLICY_LOCAL;
  if (streams && request.context->profile != nullptr) {
    const absl::StatusOr<const ResidualDecoder*> residual =
        ResidualFor(request.context->profile, request.context->manifest->geometry);
    streams = residual.ok();
    if (streams) {
      job.residual = *residual;
    } else {
      out.degraded.push_back(
          absl::StrCat("the context was computed here: ", residual.status().ToString()));
    }
  }
  if (streams) {
    const Manifest& manifest = *request.context->manifest;
    if (job.residual == nullptr) {
      ASSIGN_OR_RETURN(job.decoder, FindDecoder(manifest.codec));
    }
    const CodecInfo& info = job.residual != nullptr ? job.residual->info() : job.decoder->info();
    CodecCosts& codec_costs = codec_costs_[manifest.codec];
    out.planes =
        request.planes != nullptr ? request.planes : std::make_shared<HeldPlanes>(plane_budget_);
    out.level = request.level;
    if (request.policy == v1::POLICY_STREAM && request.slo > absl::ZeroDuration()) {
      out.level = ChooseLevel(manifest, *out.planes, codec_costs,
                              request.origin + request.slo - RealClock().Now(), &job);
    } else {
      ASSIGN_OR_RETURN(const int planes, info.PlanesForLevel(static_cast<int>(request.level)));
      job.planes = static_cast<uint32_t>(planes);
      FillStream(manifest, *out.planes, codec_costs, &job);
    }
    out.exact = info.lossless && job.planes == static_cast<uint32_t>(info.planes);
    stream = std::make_unique<CachingStream>(
        server_->Fetch({.context_id = manifest.context_id,
                        .model_fingerprint = manifest.model_fingerprint,
                        .codec_digest = manifest.codec_digest,
                        .window_bytes = FetchWindowBytes(problem)},
                       manifest),
        out.planes);
    job.stream = stream.get();
  } else {
    out.policy = v1::POLICY_LOCAL;
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LoadPolicy> policy, MakePolicy(PolicyName(out.policy)));
  job.policy = policy.get();
  if (request.progress) {
    job.progress = [&request](const LoadProgress& progress) {
      v1::GenerateResponse::Loading loading;
      loading.set_bytes_done(progress.bytes_done);
      loading.set_bytes_total(progress.bytes_total);
      loading.set_blocks_done(progress.blocks_done);
      loading.set_blocks_total(progress.blocks_total);
      request.progress(loading);
    };
  }

  const absl::Duration begin = RealClock().Now();
  ASSIGN_OR_RETURN(LoadResult result, RunLoad(job, &compute_, RealClock()));
  if (!request.query.empty()) {
    const absl::Duration last = RealClock().Now();
    RETURN_IF_ERROR(decoder_->Logits(result.last_hidden.data(), 1, logits->data()));
    out.ttft.set_first_step_ms(absl::ToDoubleMilliseconds(RealClock().Now() - last));
  }
  if (streams) Learn(problem, result, &codec_costs_[request.context->manifest->codec]);
  if (streams && result.least_planes > 0 && result.least_planes < job.planes) {
    const CodecInfo& info = job.residual != nullptr ? job.residual->info() : job.decoder->info();
    for (const CodecLevel& level : info.levels) {
      if (static_cast<uint32_t>(level.planes) == result.least_planes)
        out.level = static_cast<uint32_t>(level.level);
    }
    out.exact = false;
  }
  if (result.blocks_streamed == 0) {
    out.level = 0;
    out.exact = true;
  }
  out.bytes_fetched = result.bytes_fetched;
  out.blocks_streamed = result.blocks_streamed;
  out.blocks_computed = result.blocks_computed;
  out.degraded.insert(out.degraded.end(), result.degraded.begin(), result.degraded.end());
  out.ttft.set_stream_ms(result.stream_s * 1e3);
  out.ttft.set_decode_ms(result.decode_s * 1e3);
  out.ttft.set_final_ms(result.final_s * 1e3);
  out.ttft.set_compute_ms(result.compute_s * 1e3);
  out.ttft.set_stall_ms(result.stall_s * 1e3);
  out.ttft.set_query_prefill_ms(result.query_s * 1e3);
  out.ttft.set_planned_ms(result.plan.predicted_s * 1e3);
  out.ttft.set_bound_ms(result.plan.lower_bound_s * 1e3);
  out.migrations = ToProto(result.migrations);
  const double offset_ms = absl::ToDoubleMilliseconds(begin - request.origin);
  for (const LoadEvent& event : result.timeline) {
    v1::BlockEvent one;
    one.set_kind(ToProto(event.kind));
    one.set_column(event.column);
    one.set_layer(event.layer);
    one.set_begin_ms(static_cast<float>(offset_ms + event.begin_s * 1e3));
    one.set_end_ms(static_cast<float>(offset_ms + event.end_s * 1e3));
    out.timeline.push_back(std::move(one));
  }
  return out;
}

}  // namespace sparkv
