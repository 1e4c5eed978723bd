// Layers over many rows at once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <vector>

#include "absl/status/status.h"
#include "common/kv/kv_cache.h"
#include "common/llm/attention_options.h"
#include "common/llm/attention_work.h"
#include "common/llm/forward.h"
#include "kernels/block_select.h"
#include "kernels/gguf_gemm.h"
#include "kernels/panel_attention.h"

namespace sparkv {

// Contracts of Project, Attend and Logits as in Decoder. Thread-compatible.
class DenseForward {
 public:
  DenseForward(ForwardContext* context, const AttentionOptions& attention);

  absl::Status Project(uint32_t layer, const float* hidden, uint32_t begin, uint32_t n,
                       KvCache* cache);
  // `known` rows [0, known) of K and V were read by the previous Attend of the same layer and
  // cache, and have not changed since (0: none).
  absl::Status Attend(uint32_t layer, float* hidden, uint32_t begin, uint32_t n,
                      const KvCache& cache, uint32_t known = 0);
  absl::Status Queries(uint32_t layer, const float* hidden, uint32_t n, float* q);
  absl::Status Logits(const float* hidden, uint32_t rows, float* logits);

  // Rows at positions from here on attend densely whatever the options.
  void set_dense_from(uint32_t position) { dense_from_ = position; }
  // [kv_heads], to which the next Attend calls add the blocks that hold kMeasuredMass of the
  // attention of each query head and query block of theirs. null: nothing is measured.
  void set_measured(std::vector<ActiveBlocksSum>* measured) { measured_ = measured; }
  const AttentionWork& work() const { return work_; }

 private:
  // normed_ [n][GemmStride(d_model)] = the RMS norm of hidden [n][d_model].
  void Norm(const float* hidden, uint32_t n, const std::vector<float>& weight);
  // y [n][ldy] = or += x [n][ldx] times the matrices, stacked by rows, transposed.
  absl::Status Multiply(std::initializer_list<const Matrix*> stack, const float* x, size_t ldx,
                        uint32_t n, float* y, size_t ldy, bool accumulate);
  // Bias and norm of the queries of one row.
  void FinishQueries(const LayerWeights& w, float* row) const;
  void ReadKv(uint32_t layer, uint32_t begin, uint32_t end, const KvCache& cache);

  // Room for the K and V of so many tokens; what was there is gone. ResourceExhausted.
  absl::Status ReserveKv(uint32_t keys);
  kernels::KvPanels Panels() const {
    return {k_.get(), v_.get(), k_stride_, v_stride_, kv_capacity_};
  }
  // attended_ = attention of q_ over k_ and v_: our kernel in panels, LibTorch's products where
  // there is no AVX2.
  absl::Status CausalAttention(uint32_t begin, uint32_t n, size_t ld_attended);
  // Units of whole query blocks over the key blocks that are selected, or of about `rows` rows over
  // all of them.
  void PanelAttention(kernels::BlockAttentionArgs args);
  void Select(const kernels::BlockAttentionArgs& args);
  void MeasureActiveBlocks(const kernels::BlockAttentionArgs& args);
  bool Sparse(uint32_t begin, uint32_t n) const;

  static constexpr std::align_val_t kAlignment{64};  // panels begin a cache line
  struct FreeAligned {
    void operator()(float* p) const { ::operator delete(p, kAlignment); }
  };
  using AlignedFloats = std::unique_ptr<float[], FreeAligned>;

  ForwardContext& context_;
  const AttentionOptions attention_;
  const bool panels_;
  uint32_t dense_from_ = UINT32_MAX;
  std::vector<ActiveBlocksSum>* measured_ = nullptr;
  AttentionWork work_;
  std::vector<std::vector<float>> scratch_;  // [threads], of GgufGemm
  std::vector<float> normed_, wide_, act_, q_, attended_;
  AlignedFloats k_, v_;                 // [kv_heads] of panels, or of rows [kv_capacity_][head_dim]
  size_t k_stride_ = 0, v_stride_ = 0;  // floats between heads
  uint32_t kv_capacity_ = 0;
  std::vector<float> key_mean_, key_similarity_;  // [kv_heads][kv_capacity_ / 64]([head_dim])
  std::vector<std::vector<uint32_t>> of_list_;    // [heads * query blocks]
  kernels::SelectedBlocks selected_;
};

}  // namespace sparkv
