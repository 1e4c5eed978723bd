// The row-wise operations of a transformer layer on f32 rows: norm, gated activation, rotary
// embedding, online softmax. Each has a scalar twin; the AVX2 body agrees with it to 1e-6 relative
// (sums to 1e-5).
#pragma once

#include <cstddef>

namespace sparkv::kernels {

// y = x / sqrt(mean(x^2) + epsilon) * weight; y may be x. n > 0.
void RmsNorm(const float* x, const float* weight, float epsilon, float* y, size_t n);
void RmsNormScalar(const float* x, const float* weight, float epsilon, float* y, size_t n);

// out = gate / (1 + exp(-gate)) * up; out may be gate or up.
void SiluMul(const float* gate, const float* up, float* out, size_t n);
void SiluMulScalar(const float* gate, const float* up, float* out, size_t n);

// y += x.
void AddInto(const float* x, float* y, size_t n);

// Rotates `pairs` pairs of x in place by angles whose cosines and sines are given: (2i, 2i + 1) or
// (i, i + pairs).
void RopeInterleaved(float* x, const float* cos, const float* sin, size_t pairs);
void RopeInterleavedScalar(float* x, const float* cos, const float* sin, size_t pairs);
void RopeSplitHalf(float* x, const float* cos, const float* sin, size_t pairs);

// One block of an online softmax over a row of scores: x[0..n) becomes exp(scale x - max'), where
// max' is the larger of *max and the block's largest scale x; *sum becomes factor *sum + the
// block's sum, *max becomes max'. Returns the factor exp(*max - max') by which what was summed
// before must be multiplied. n = 0 changes nothing and returns 1.
float SoftmaxBlock(float* x, size_t n, float scale, float* max, float* sum);
float SoftmaxBlockScalar(float* x, size_t n, float scale, float* max, float* sum);

}  // namespace sparkv::kernels
