// Layers over many rows at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/kv/kv_cache.h"
#include "common/llm/forward.h"

namespace sparkv {

// Contracts of Project, Attend and Logits as in Decoder. Thread-compatible; keeps one layer's weights in f32 between calls.
class DenseForward {
 public:
  explicit DenseForward(ForwardContext* context) : context_(*context) {}

  absl::Status Project(uint32_t layer, const float* hidden, uint32_t begin, uint32_t n,
                       KvCache* cache);
  // `known` rows [0, known) of K and V were read by the previous Attend of the same layer and cache, and have not changed
  // since (0: none).
  absl::Status Attend(uint32_t layer, float* hidden, uint32_t begin, uint32_t n,
                      const KvCache& cache, uint32_t known = 0);
  absl::Status Logits(const float* hidden, uint32_t rows, float* logits);

 private:
  enum Stack { kQ, kKv, kO, kGateUp, kDown, kStacks };
  // y [n][ldy] = or += x [n][cols] times the matrices, stacked by rows, transposed.
  absl::Status Linear(Stack stack, uint32_t layer, const float* x, uint32_t n, float* y, size_t ldy,
                      bool accumulate);
  void Expand(const Matrix& m, uint32_t begin, uint32_t end, float* out);
  void ReadKv(uint32_t layer, uint32_t begin, uint32_t end, const KvCache& cache);

  ForwardContext& context_;
  // Expanded weights, stack by stack as they are needed; a buffer stays when the layer changes.
  struct Expanded {
    std::unique_ptr<float[]> data;  // not cleared: filled by all threads at once
    size_t capacity = 0;
    int64_t layer = -1;
  };
  Expanded expanded_[kStacks];
  std::vector<float> slice_;  // for matrices too large to keep
  std::vector<float> normed_, wide_, act_, q_, attended_;
  std::vector<float> k_, v_;  // [kv_heads][kv_capacity_][head_dim]
  uint32_t kv_capacity_ = 0;
};

}  // namespace sparkv
