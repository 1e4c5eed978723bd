// Layers over one or a few rows, straight from the weights as stored.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/base/cancel.h"
#include "common/kv/kv_cache.h"
#include "common/llm/forward.h"

namespace sparkv {

// Contracts of Project, Attend and Logits as in Decoder, for n < kDenseRows rows.
// Thread-compatible.
class SmallForward {
 public:
  explicit SmallForward(ForwardContext* context);

  absl::Status Project(uint32_t layer, const float* hidden, uint32_t begin, uint32_t n,
                       KvCache* cache);
  absl::Status Attend(uint32_t layer, float* hidden, uint32_t begin, uint32_t n,
                      const KvCache& cache);
  // Project and Attend of every layer in one parallel region; Cancelled between two layers.
  absl::Status AllLayers(float* hidden, uint32_t begin, uint32_t n, KvCache* cache,
                         const CancelToken& cancel);
  absl::Status Logits(const float* hidden, uint32_t rows, float* logits);

 private:
  struct Step {
    uint32_t layer;
    float* hidden;
    uint32_t begin;
    uint32_t n;
  };
  struct Member {  // buffers of one thread
    std::vector<float> normed, q, attended;
  };

  void Prepare(uint32_t begin, uint32_t n);
  // Phases of a layer, each run by every member of the team between two barriers.
  void Norm(const Step& s, const std::vector<float>& weight, Member* member);
  void Rows(int member, const Matrix& m, const float* x, uint32_t n, float* y);
  void ProjectQkv(const Step& s, bool q, bool kv, int member);
  void WriteKv(const Step& s, KvCache* cache, int member);
  void AttendParts(const Step& s, const KvCache& cache, int member);
  void Output(const Step& s, int member);
  void FeedForward(const Step& s, int member);

  ForwardContext& context_;
  std::vector<Member> members_;
  uint32_t splits_ = 1;  // ranges of keys that the rows' attention is divided into
  std::vector<float> q_, k_, v_, gate_, up_, y_;
  std::vector<float> part_max_, part_sum_, part_mean_;  // [n][kv_heads][splits][group]([dim])
};

}  // namespace sparkv
