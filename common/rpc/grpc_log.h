// gRPC's own lines on stderr.
#pragma once

namespace sparkv {

// They tell people nothing that a status does not; GRPC_VERBOSITY brings them back. Early in main,
// before any thread: sets an environment variable.
void QuietGrpc();

}  // namespace sparkv
