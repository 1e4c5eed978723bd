#include "common/rpc/grpc_log.h"

#include <cstdlib>

namespace sparkv {

void QuietGrpc() { setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0); }

}  // namespace sparkv
