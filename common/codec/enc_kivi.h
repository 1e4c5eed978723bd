// The encoder of dec_kivi.h.
#pragma once

#include "common/codec/enc_codec.h"

namespace sparkv {

const BlockEncoder* KiviEncoder();

}  // namespace sparkv
