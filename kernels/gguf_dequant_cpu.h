// The twins behind DequantizeRow; arguments are checked there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gguf_dequant.h"

namespace sparkv::kernels::internal {

void DequantizeScalar(GgmlType type, const uint8_t* src, float* dst, size_t n);

// False when there is no AVX2 version of the type (nothing is written then).
bool DequantizeAvx2(GgmlType type, const uint8_t* src, float* dst, size_t n);

// The six-bit scale and minimum of sub-block j (0..7) of a Q4_K or Q5_K block.
inline void ScaleMinK4(int j, const uint8_t* scales, uint8_t* scale, uint8_t* minimum) {
  if (j < 4) {
    *scale = scales[j] & 63;
    *minimum = scales[j + 4] & 63;
  } else {
    *scale = static_cast<uint8_t>((scales[j + 4] & 0xF) | ((scales[j - 4] >> 6) << 4));
    *minimum = static_cast<uint8_t>((scales[j + 4] >> 4) | ((scales[j] >> 6) << 4));
  }
}

}  // namespace sparkv::kernels::internal
