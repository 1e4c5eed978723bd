// Whether the predictions of a column hold on a base that was computed as well as on the streamed
// one that they were made from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/codec/dec_transform.h"
#include "common/codec/enc_transform.h"

namespace sparkv {

// What is streamed above a computed layer is finished on values without the error that the encoder
// had in them. Rows of the column, spread over it, each play one split: below its layer they are
// exact, from there on the difference is carried upwards by the predictions, as a loader would.
// Errors are weighed as the transform weighs them. Thread-compatible.
class BaseMismatch {
 public:
  static constexpr uint32_t kMaxRows = 64;

  // All outlive it. No rows where the profile does not predict from below, or has no layer to
  // split at.
  BaseMismatch(const ResidualTransform& transform, const ForwardMatrices& forward, uint32_t tokens);

  // The rows of the column that play, ascending.
  std::span<const uint32_t> rows() const { return rows_; }
  // Of the values that Predict and Compare take, [rows][stride]: K before RoPE, then V.
  size_t stride() const { return ld_; }

  // Before `layer` is quantized: z, exact, and chain, as streamed, are of the layer below.
  void Predict(uint32_t layer, const float* z, TransformChain* chain);
  // After: z and chain are of `layer`. exact[t] != 0: token t travels as it is.
  void Compare(uint32_t layer, const float* z, TransformChain* chain, const uint8_t* exact);

  // Mean square of the differences over that of the quantization's own errors: at most 1 where a
  // split costs no more than streaming.
  double ratio() const { return own_ > 0 ? carried_ / own_ : 0; }

 private:
  uint32_t SplitOf(size_t i) const;

  const ResidualTransform& transform_;
  const ForwardMatrices& forward_;
  const size_t ld_;
  std::vector<uint32_t> rows_;
  std::vector<float> delta_;  // [rows][ld_]
  TransformScratch scratch_;
  double own_ = 0, carried_ = 0;
};

}  // namespace sparkv
