// IEEE 754 binary16 <-> binary32. Round to nearest, ties to even; infinities and NaN are kept (a
// NaN stays a NaN), values beyond the f16 range become infinity.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparkv::kernels {

float HalfToFloat(uint16_t half);
uint16_t FloatToHalf(float value);

// n values; the ranges must not overlap.
void HalfToFloat(const uint16_t* src, float* dst, size_t n);
void FloatToHalf(const float* src, uint16_t* dst, size_t n);

// The scalar twins, for tests.
void HalfToFloatScalar(const uint16_t* src, float* dst, size_t n);
void FloatToHalfScalar(const float* src, uint16_t* dst, size_t n);

}  // namespace sparkv::kernels
