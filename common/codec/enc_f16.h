// The encoder of dec_f16.h.
#pragma once

#include "common/codec/enc_codec.h"

namespace sparkv {

const BlockEncoder* F16Encoder();

}  // namespace sparkv
