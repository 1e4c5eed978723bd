// The encoder of dec_paper.h.
#pragma once

#include "common/codec/enc_codec.h"

namespace sparkv {

const BlockEncoder* PaperEncoder();

}  // namespace sparkv
