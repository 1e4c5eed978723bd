// From runs over tokens (uint8_t[head_dim][tokens], as symbols are coded) to rows of f16 bits
// ([tokens][head_dim], as K and V are kept). Scalar twins and AVX2 twins chosen at run time,
// bit-equal.
#pragma once

#include <cstdint>

namespace sparkv {

// How a code with its upper bits known becomes a number: c = scale * q + offset.
struct CodeScale {
  float scale = 1.0f;   // scale * q + offset must be exact in f32
  float offset = 0.0f;  // the middle of what q leaves open
};

// One head. lo and step: [head_dim] when per_channel, else [tokens]; finite.
// out = f16(clamp(lo + step * c, -65504, 65504)), every f32 operation rounded to nearest even, none
// fused.
struct DequantizeArgs {
  const uint8_t* codes = nullptr;  // [head_dim][tokens]
  uint32_t tokens = 0;
  uint32_t head_dim = 0;
  const float* lo = nullptr;
  const float* step = nullptr;
  bool per_channel = false;
  CodeScale code;
  // For a part of a head: how far apart channels lie in codes and tokens in out; 0 means tokens and
  // head_dim.
  uint32_t codes_stride = 0;
  uint32_t out_stride = 0;
};
void DequantizeHead(const DequantizeArgs& args, uint16_t* out);
void DequantizeHeadScalar(const DequantizeArgs& args, uint16_t* out);

// One head: out[t][d] = high[d][t] << 8 | low[d][t].
void JoinBytes(const uint8_t* high, const uint8_t* low, uint32_t tokens, uint32_t head_dim,
               uint16_t* out);

}  // namespace sparkv
