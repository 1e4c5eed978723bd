// The lossless codec, FORMAT.md section 4.1.
#pragma once

#include "common/codec/codec.h"

namespace sparkv {

const BlockDecoder* F16Decoder();

}  // namespace sparkv
