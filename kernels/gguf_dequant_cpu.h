// The twins behind DequantizeRow; arguments are checked there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

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

// The 16 six-bit scales of a Q3_K block, 0..63 (32 is zero).
inline void ScalesK3(const uint8_t* packed, int8_t* scales) {
  uint32_t a[3];
  std::memcpy(a, packed, sizeof(a));
  constexpr uint32_t k2 = 0x03030303u, k4 = 0x0F0F0F0Fu;
  const uint32_t out[4] = {(a[0] & k4) | ((a[2] & k2) << 4),
                           (a[1] & k4) | (((a[2] >> 2) & k2) << 4),
                           ((a[0] >> 4) & k4) | (((a[2] >> 4) & k2) << 4),
                           ((a[1] >> 4) & k4) | (((a[2] >> 6) & k2) << 4)};
  std::memcpy(scales, out, sizeof(out));
}

}  // namespace sparkv::kernels::internal
