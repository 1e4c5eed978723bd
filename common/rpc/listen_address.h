// Addresses that daemons listen on.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sparkv {

// InvalidArgument unless host:port ("[::1]:7070" for IPv6; port 0: any free one) or unix:PATH. gRPC
// itself would take the port modulo 65536.
absl::Status CheckListenAddress(const std::string& address);

// FailedPrecondition when somebody answers at the socket of unix:PATH: gRPC would take it over.
// Other addresses are Ok.
absl::Status CheckSocketFree(const std::string& address);

// InvalidArgument for a port beyond 65535. Other forms that gRPC knows (dns:///…) pass.
absl::Status CheckTargetAddress(const std::string& address);

// What clients are told: the address with the port that was chosen.
std::string ShownAddress(const std::string& listen, int port);

}  // namespace sparkv
