// Symbols to planes of the residual codecs, FORMAT.md section 4.6.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/codec/codec.h"
#include "common/codec/profile.h"

namespace sparkv {

// A quantized block of layer >= 1.
struct QuantizedBlock {
  std::vector<uint16_t> exact_tokens;  // ascending
  std::vector<uint16_t> exact;         // [2][kv_heads][exact_tokens][head_dim] f16 bits
  // [2 * row][tokens] of the last plane's step; Coarser(symbol, planes - 1) is at most
  // kMaxFirstMagnitude.
  std::vector<int16_t> symbols;
};

// All planes. The same bytes from the same symbols on any machine.
std::vector<std::string> WritePlanes(const CodecInfo& info, const CodecProfile& profile,
                                     uint32_t layer, uint32_t tokens, const QuantizedBlock& block);

// The planes of layer 0, which is not stored: tags alone.
std::vector<std::string> EmptyPlanes(const CodecInfo& info);

}  // namespace sparkv
