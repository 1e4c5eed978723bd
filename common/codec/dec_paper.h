// SparKV's own codec as a baseline: bits by layer, trained reconstruction levels, Huffman;
// FORMAT.md section 4.3.
#pragma once

#include "common/codec/codec.h"

namespace sparkv {

inline constexpr int kPaperPlanes = 3;  // each after the first has one more bit

const BlockDecoder* PaperDecoder();

}  // namespace sparkv
