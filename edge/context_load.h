// Fills an empty sequence with a context's KV by a policy, and runs the query after it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/cancel.h"
#include "common/base/sha256.h"
#include "common/codec/profile.h"
#include "common/codec/residual.h"
#include "common/kv/kv_cache.h"
#include "common/llm/decoder.h"
#include "edge/contexts.h"
#include "edge/load/decoder_compute.h"
#include "edge/load/held_planes.h"
#include "edge/load/loader.h"
#include "edge/net/server_client.h"
#include "sparkv/v1/edge.pb.h"

namespace sparkv {

struct ContextLoadRequest {
  const ResolvedContext* context = nullptr;
  v1::Policy policy = v1::POLICY_LOCAL;  // specified
  uint32_t level = 0;                    // one of the context's codec
  // Policy stream, above 0: instead of that level, the highest that is predicted to bring the first
  // token so long after `origin`, or else the lowest. It falls when the link proves slower.
  absl::Duration slo;
  std::shared_ptr<HeldPlanes> planes;  // of the context, from an earlier load; null: none
  std::span<const int32_t> query;      // ids after the context; may be empty
  absl::Duration origin;               // clock time from which the timeline counts
  CancelToken cancel;
  std::function<void(const v1::GenerateResponse::Loading&)> progress;  // on the engine thread
};

struct ContextLoadResult {
  v1::Policy policy = v1::POLICY_LOCAL;  // the one used
  uint32_t level = 0;                    // least of the streamed blocks; 0: none was streamed
  bool exact = true;                     // nothing lossy is in the cache
  uint64_t bytes_fetched = 0;
  uint32_t blocks_streamed = 0;
  uint32_t blocks_computed = 0;
  std::vector<std::string> degraded;
  std::shared_ptr<HeldPlanes> planes;  // what was streamed; null: nothing could be
  v1::Ttft ttft;                       // stream, decode, final, compute, stall, query_prefill
  std::vector<v1::BlockEvent> timeline;
  v1::Migrations migrations;
};

// What is known of the link before a load; each load refines it.
struct LinkPrior {
  double bytes_per_s = 12.5e6;
  double rtt_s = 0.02;
};

// Of received planes that are kept beside loaded contexts, so that a higher level of one fetches
// only what it lacks. Planes go with their context's KV.
inline constexpr uint64_t kHeldPlaneBytes = 64 << 20;

// Lives on the engine thread.
class ContextLoader {
 public:
  // decoder and server (null: none) outlive it.
  ContextLoader(Decoder* decoder, ServerClient* server, const LinkPrior& link)
      : decoder_(decoder), compute_(decoder), server_(server), link_(link) {}

  // Times the operators of this device, about a second; needed before Load can divide work between
  // link and device.
  absl::Status Calibrate(KvDtype dtype);

  // After Ok the cache holds context and query, and logits [vocabulary] is the last query token's
  // (untouched without a query). Whatever the server does, the load ends with the right KV; only
  // Cancelled, ResourceExhausted (KV memory) and faults of the engine are errors.
  absl::StatusOr<ContextLoadResult> Load(const ContextLoadRequest& request, KvCache* cache,
                                         std::vector<float>* logits);

 private:
  struct CodecCosts {
    double decode_s_per_byte = 2e-8;  // until the first load has told
    double final_row = 0;
  };
  void Learn(const LoadProblem& problem, const LoadResult& result, CodecCosts* costs);
  // The decoder of the profile's codec, kept until another profile comes.
  absl::StatusOr<const ResidualDecoder*> ResidualFor(
      const std::shared_ptr<const CodecProfile>& profile, const KvGeometry& geometry);
  // What the blocks of job->planes planes are and cost; planes that are held cost the link nothing.
  void FillStream(const Manifest& manifest, const HeldPlanes& held, const CodecCosts& costs,
                  LoadJob* job) const;
  // Fills job for the highest level whose load by policy stream is predicted to take `left` at
  // most, or else the lowest, and returns it.
  uint32_t ChooseLevel(const Manifest& manifest, const HeldPlanes& held, const CodecCosts& costs,
                       absl::Duration left, LoadJob* job) const;

  Decoder* const decoder_;
  DecoderCompute compute_;
  ServerClient* const server_;
  LinkPrior link_;
  ComputeCosts costs_;
  std::map<std::string, CodecCosts> codec_costs_;  // by the codec's name
  const std::shared_ptr<PlaneBudget> plane_budget_ = std::make_shared<PlaneBudget>(kHeldPlaneBytes);
  Digest profile_digest_{};
  std::unique_ptr<ResidualDecoder> residual_;  // of that profile
};

}  // namespace sparkv
