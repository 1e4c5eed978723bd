// The encoder of dec_generic.h.
#pragma once

#include "common/codec/enc_codec.h"

namespace sparkv {

const BlockEncoder* GenericEncoder();

}  // namespace sparkv
