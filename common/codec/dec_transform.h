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
  size_t ld_input = 0;       // floats between rows of input
  std::vector<float> input;  // [tokens][ld_input]: what predict(l) is multiplied with
  size_t ld_z = 0;
  std::vector<float> z;         // [tokens][ld_z]; empty where z is the first part of input
  std::vector<float> cos, sin;  // [tokens][pairs]
  std::vector<float> back;      // [tokens][pairs]: -sin

  // z of row t, [2 * row].
  float* Z(uint32_t t) { return z.empty() ? &input[t * ld_input] : &z[t * ld_z]; }
  size_t z_stride() const { return z.empty() ? ld_input : ld_z; }
};

// Rows of the work arrays of one thread.
class TransformScratch {
 public:
  TransformScratch(const ProfileShape& shape, uint32_t rows);
  size_t ld_y = 0;       // floats between rows of y
  std::vector<float> y;  // [rows][ld_y]
  size_t ld_x = 0;
  std::vector<float> x;  // [rows][ld_x]: one group's symbols
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
  // scratch.y rows [0, n) = the prediction for rows [begin, begin + n) of `layer`.
  void Predict(uint32_t layer, uint32_t begin, uint32_t n, TransformChain* chain,
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
