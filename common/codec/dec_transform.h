// From symbols to K and V with a model profile: prediction, inverse transform, rotary embedding.
// The encoder uses the same functions, so that both sides predict from the same numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/codec/profile.h"
#include "common/codec/residual.h"

namespace sparkv {

// z of the layer below for each token, and what else a prediction needs.
class TransformChain final : public ColumnChain {
 public:
  uint32_t tokens = 0;
  size_t ld_z = 0;
  std::vector<float> z;  // [tokens][ld_z]
  size_t ld_u = 0;
  std::vector<float> u;         // [distinct tokens][ld_u]: token * e
  std::vector<uint32_t> which;  // [tokens]: the row of u
  std::vector<float> cos, sin;  // [tokens][pairs]
  std::vector<float> back;      // [tokens][pairs]: -sin

  // z of row t, [2 * row].
  float* Z(uint32_t t) { return &z[t * ld_z]; }
};

// Work arrays of one thread, for rows [begin, end) of a column in strips of kFinishRows.
class TransformScratch {
 public:
  explicit TransformScratch(const ProfileShape& shape);
  size_t ld_y = 0;
  std::vector<float> y;  // [kFinishRows][ld_y]: what is being made
  size_t ld_x = 0;
  std::vector<float> x;  // [kFinishRows][ld_x]: one group's symbols
  size_t ld_below = 0;
  std::vector<float> below;         // [kFinishRows][ld_below]: projected z
  std::vector<float> token_part;    // [distinct tokens of the rows][ld_y]
  std::vector<uint32_t> part_of_u;  // [rows of u]: the row of token_part
  std::vector<float> gemm;
};

class ResidualTransform {
 public:
  // InvalidArgument for one of another width.
  static absl::StatusOr<ResidualTransform> Create(std::shared_ptr<const CodecProfile> profile,
                                                  TokenEmbedding embedding);

  const CodecProfile& profile() const { return *profile_; }
  absl::StatusOr<std::unique_ptr<TransformChain>> Begin(uint32_t first_token,
                                                        std::span<const int32_t> tokens) const;
  // z of rows [begin, begin + n) = k (after RoPE) and v, [n][row] f32.
  void SetZ(uint32_t begin, uint32_t n, const float* k, const float* v, size_t stride,
            TransformChain* chain) const;
  // What the tokens of rows [begin, end) add to the prediction of `layer`: first, and once for all
  // strips of the rows.
  void PredictFromTokens(uint32_t layer, uint32_t begin, uint32_t end, const TransformChain& chain,
                         TransformScratch* scratch) const;
  // scratch.y rows [0, n) = the prediction for rows [begin, begin + n) of `layer`.
  void Predict(uint32_t layer, uint32_t begin, uint32_t n, TransformChain* chain,
               TransformScratch* scratch) const;
  // scratch.y rows [0, n) += what z [n][ld] of the layer below adds to the prediction of `layer`.
  void AddBelow(uint32_t layer, const float* z, size_t ld, uint32_t n,
                TransformScratch* scratch) const;
  // What the symbols [2 * row][tokens] of `planes` planes say beyond, or of, the first plane.
  enum class Part { kFirstPlane, kFurtherPlanes };
  void AddSymbols(uint32_t layer, Part part, const int16_t* symbols, uint32_t planes,
                  uint32_t begin, uint32_t n, const TransformChain& chain,
                  TransformScratch* scratch) const;
  // Rotates the K part of scratch.y.
  void Rotate(uint32_t begin, uint32_t n, const TransformChain& chain,
              TransformScratch* scratch) const;
  void RotateRow(uint32_t t, bool back, const TransformChain& chain, float* k) const;

 private:
  explicit ResidualTransform(std::shared_ptr<const CodecProfile> profile, TokenEmbedding embedding)
      : profile_(std::move(profile)), embedding_(std::move(embedding)) {}
  std::shared_ptr<const CodecProfile> profile_;
  TokenEmbedding embedding_;
};

}  // namespace sparkv
