// The encoder of dec_cachegen.h.
#pragma once

#include "common/codec/enc_codec.h"

namespace sparkv {

const BlockEncoder* CachegenEncoder();

}  // namespace sparkv
