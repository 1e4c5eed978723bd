// The row-wise operations of a transformer layer on f32 rows: norm, gated activation, rotary embedding, merging of
// attention parts. Each has a scalar twin; the AVX2 body agrees with it to 1e-6 relative (sums to 1e-5).
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

// Rotates `pairs` pairs of x in place by angles whose cosines and sines are given: (2i, 2i + 1) or (i, i + pairs).
void RopeInterleaved(float* x, const float* cos, const float* sin, size_t pairs);
void RopeInterleavedScalar(float* x, const float* cos, const float* sin, size_t pairs);
void RopeSplitHalf(float* x, const float* cos, const float* sin, size_t pairs);

// Joins softmax-weighted means over two disjoint key sets: out = (e^lse_a a + e^lse_b b) / (e^lse_a + e^lse_b). out may be
// a or b. A set whose lse is -inf contributes nothing.
void MergeAttention(const float* a, float lse_a, const float* b, float lse_b, float* out, size_t n);

}  // namespace sparkv::kernels
