// Scalar twin: one loop for each type, written after the block layouts and nothing else.
#include <bit>
#include <cstring>

#include "kernels/gguf_dequant_cpu.h"
#include "kernels/half.h"

namespace sparkv::kernels::internal {
namespace {

float ReadHalf(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return HalfToFloat(bits);
}

uint32_t ReadU32(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

void F16(const uint8_t* s, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = ReadHalf(s + 2 * i);
}

void BF16(const uint8_t* s, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, s + 2 * i, sizeof(bits));
    y[i] = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
}

// d (f16), 16 bytes of nibbles: low ones are values 0..15, high ones 16..31.
void Q4_0(const uint8_t* s, float* y, size_t n) {
  for (size_t b = 0; b < n / 32; ++b, s += 18, y += 32) {
    const float d = ReadHalf(s);
    for (int j = 0; j < 16; ++j) {
      y[j] = d * static_cast<float>((s[2 + j] & 0xF) - 8);
      y[j + 16] = d * static_cast<float>((s[2 + j] >> 4) - 8);
    }
  }
}

// d, m (f16), nibbles as in Q4_0.
void Q4_1(const uint8_t* s, float* y, size_t n) {
  for (size_t b = 0; b < n / 32; ++b, s += 20, y += 32) {
    const float d = ReadHalf(s);
    const float m = ReadHalf(s + 2);
    for (int j = 0; j < 16; ++j) {
      y[j] = d * static_cast<float>(s[4 + j] & 0xF) + m;
      y[j + 16] = d * static_cast<float>(s[4 + j] >> 4) + m;
    }
  }
}

// d (f16), 32 fifth bits, nibbles.
void Q5_0(const uint8_t* s, float* y, size_t n) {
  for (size_t b = 0; b < n / 32; ++b, s += 22, y += 32) {
    const float d = ReadHalf(s);
    const uint32_t high = ReadU32(s + 2);
    for (int j = 0; j < 16; ++j) {
      const int low = static_cast<int>((s[6 + j] & 0xF) | (((high >> j) & 1) << 4));
      const int up = static_cast<int>((s[6 + j] >> 4) | (((high >> (j + 16)) & 1) << 4));
      y[j] = d * static_cast<float>(low - 16);
      y[j + 16] = d * static_cast<float>(up - 16);
    }
  }
}

// d, m (f16), 32 fifth bits, nibbles.
void Q5_1(const uint8_t* s, float* y, size_t n) {
  for (size_t b = 0; b < n / 32; ++b, s += 24, y += 32) {
    const float d = ReadHalf(s);
    const float m = ReadHalf(s + 2);
    const uint32_t high = ReadU32(s + 4);
    for (int j = 0; j < 16; ++j) {
      const int low = static_cast<int>((s[8 + j] & 0xF) | (((high >> j) & 1) << 4));
      const int up = static_cast<int>((s[8 + j] >> 4) | (((high >> (j + 16)) & 1) << 4));
      y[j] = d * static_cast<float>(low) + m;
      y[j + 16] = d * static_cast<float>(up) + m;
    }
  }
}

// d (f16), 32 signed bytes.
void Q8_0(const uint8_t* s, float* y, size_t n) {
  for (size_t b = 0; b < n / 32; ++b, s += 34, y += 32) {
    const float d = ReadHalf(s);
    for (int j = 0; j < 32; ++j) y[j] = d * static_cast<float>(static_cast<int8_t>(s[2 + j]));
  }
}

// 16 scale|minimum nibble pairs, 64 bytes of 2-bit values, d, dmin (f16).
void Q2_K(const uint8_t* s, float* y, size_t n) {
  for (size_t b = 0; b < n / 256; ++b, s += 84) {
    const uint8_t* scale = s;
    const uint8_t* q = s + 16;
    const float d = ReadHalf(s + 80);
    const float dmin = ReadHalf(s + 82);
    for (int half = 0; half < 2; ++half, q += 32) {
      for (int shift = 0; shift < 8; shift += 2) {
        for (int part = 0; part < 2; ++part, ++scale) {
          const float dl = d * static_cast<float>(*scale & 0xF);
          const float ml = dmin * static_cast<float>(*scale >> 4);
          for (int l = 0; l < 16; ++l)
            *y++ = dl * static_cast<float>((q[16 * part + l] >> shift) & 3) - ml;
        }
      }
    }
  }
}

// 32 bytes of third bits, 64 bytes of 2-bit values, 16 six-bit scales in 12 bytes, d (f16).
void Q3_K(const uint8_t* s, float* y, size_t n) {
  for (size_t b = 0; b < n / 256; ++b, s += 110) {
    const uint8_t* high = s;
    const uint8_t* q = s + 32;
    const float d = ReadHalf(s + 108);
    int8_t scales[16];
    ScalesK3(s + 96, scales);
    const int8_t* scale = scales;
    uint8_t bit = 1;
    for (int half = 0; half < 2; ++half, q += 32) {
      for (int shift = 0; shift < 8; shift += 2, bit = static_cast<uint8_t>(bit << 1)) {
        for (int part = 0; part < 2; ++part, ++scale) {
          const float dl = d * static_cast<float>(*scale - 32);
          for (int l = 16 * part; l < 16 * part + 16; ++l) {
            *y++ = dl * static_cast<float>(((q[l] >> shift) & 3) - ((high[l] & bit) != 0 ? 0 : 4));
          }
        }
      }
    }
  }
}

// d, dmin (f16), 8 six-bit scales and minima in 12 bytes, 128 bytes of nibbles.
void Q4_K(const uint8_t* s, float* y, size_t n) {
  for (size_t b = 0; b < n / 256; ++b, s += 144) {
    const float d = ReadHalf(s);
    const float dmin = ReadHalf(s + 2);
    const uint8_t* q = s + 16;
    for (int j = 0; j < 8; ++j) {
      uint8_t scale, minimum;
      ScaleMinK4(j, s + 4, &scale, &minimum);
      const float dl = d * static_cast<float>(scale);
      const float ml = dmin * static_cast<float>(minimum);
      const int shift = (j & 1) * 4;
      for (int l = 0; l < 32; ++l) *y++ = dl * static_cast<float>((q[l] >> shift) & 0xF) - ml;
      if (j & 1) q += 32;
    }
  }
}

// As Q4_K, with 32 bytes of fifth bits (bit j of byte l: value l of sub-block j) before the
// nibbles.
void Q5_K(const uint8_t* s, float* y, size_t n) {
  for (size_t b = 0; b < n / 256; ++b, s += 176) {
    const float d = ReadHalf(s);
    const float dmin = ReadHalf(s + 2);
    const uint8_t* high = s + 16;
    const uint8_t* q = s + 48;
    for (int j = 0; j < 8; ++j) {
      uint8_t scale, minimum;
      ScaleMinK4(j, s + 4, &scale, &minimum);
      const float dl = d * static_cast<float>(scale);
      const float ml = dmin * static_cast<float>(minimum);
      const int shift = (j & 1) * 4;
      for (int l = 0; l < 32; ++l) {
        const int value = ((q[l] >> shift) & 0xF) + (((high[l] >> j) & 1) << 4);
        *y++ = dl * static_cast<float>(value) - ml;
      }
      if (j & 1) q += 32;
    }
  }
}

// 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales, d (f16).
void Q6_K(const uint8_t* s, float* y, size_t n) {
  for (size_t b = 0; b < n / 256; ++b, s += 210) {
    const uint8_t* ql = s;
    const uint8_t* qh = s + 128;
    const auto* scale = reinterpret_cast<const int8_t*>(s + 192);
    const float d = ReadHalf(s + 208);
    for (int half = 0; half < 2; ++half, ql += 64, qh += 32, scale += 8, y += 128) {
      for (int quarter = 0; quarter < 4; ++quarter) {
        for (int l = 0; l < 32; ++l) {
          const int low = (ql[l + 32 * (quarter & 1)] >> (quarter < 2 ? 0 : 4)) & 0xF;
          const int value = (low | (((qh[l] >> (2 * quarter)) & 3) << 4)) - 32;
          y[32 * quarter + l] =
              d * static_cast<float>(scale[2 * quarter + l / 16]) * static_cast<float>(value);
        }
      }
    }
  }
}

}  // namespace

void DequantizeScalar(GgmlType type, const uint8_t* src, float* dst, size_t n) {
  switch (type) {
    case GgmlType::kF32:
      std::memcpy(dst, src, n * sizeof(float));
      return;
    case GgmlType::kF16:
      return F16(src, dst, n);
    case GgmlType::kBF16:
      return BF16(src, dst, n);
    case GgmlType::kQ4_0:
      return Q4_0(src, dst, n);
    case GgmlType::kQ4_1:
      return Q4_1(src, dst, n);
    case GgmlType::kQ5_0:
      return Q5_0(src, dst, n);
    case GgmlType::kQ5_1:
      return Q5_1(src, dst, n);
    case GgmlType::kQ8_0:
      return Q8_0(src, dst, n);
    case GgmlType::kQ2_K:
      return Q2_K(src, dst, n);
    case GgmlType::kQ3_K:
      return Q3_K(src, dst, n);
    case GgmlType::kQ4_K:
      return Q4_K(src, dst, n);
    case GgmlType::kQ5_K:
      return Q5_K(src, dst, n);
    case GgmlType::kQ6_K:
      return Q6_K(src, dst, n);
  }
}

}  // namespace sparkv::kernels::internal
