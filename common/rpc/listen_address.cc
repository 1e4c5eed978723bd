#include "common/rpc/listen_address.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sparkv {
namespace {

constexpr uint32_t kMaxPort = 65535;

bool IsUnix(const std::string& address) { return address.rfind("unix:", 0) == 0; }

// What stands behind the last colon, when it is all digits.
std::string PortText(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos ||
      address.find_first_not_of("0123456789", colon + 1) != std::string::npos)
    return "";
  return address.substr(colon + 1);
}

bool IsPort(const std::string& text) {
  uint32_t port = 0;
  return absl::SimpleAtoi(text, &port) && port <= kMaxPort;
}

}  // namespace

absl::Status CheckListenAddress(const std::string& address) {
  if (IsUnix(address) && address.size() > 5) return absl::OkStatus();
  if (address.rfind(':') != 0 && IsPort(PortText(address))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("listen: got '", address, "', host:port (0 to ",
                                                 kMaxPort, ") or unix:PATH is expected"));
}

absl::Status CheckSocketFree(const std::string& address) {
  sockaddr_un socket_address{};
  const std::string path = IsUnix(address) ? address.substr(5) : "";
  if (path.empty() || path.size() >= sizeof(socket_address.sun_path)) return absl::OkStatus();
  socket_address.sun_family = AF_UNIX;
  path.copy(socket_address.sun_path, path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::OkStatus();
  const bool absent = ::connect(fd, reinterpret_cast<const sockaddr*>(&socket_address),
                                sizeof(socket_address)) != 0 &&
                      (errno == ENOENT || errno == ECONNREFUSED);
  ::close(fd);
  if (absent) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("listen: another program listens on ", address));
}

absl::Status CheckTargetAddress(const std::string& address) {
  if (address.empty())
    return absl::InvalidArgumentError("the address is empty; host:port or unix:PATH is expected");
  const std::string port = PortText(address);
  if (IsUnix(address) || port.empty() || IsPort(port)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("got '", address, "', ports go to ", kMaxPort));
}

std::string ShownAddress(const std::string& listen, int port) {
  return IsUnix(listen) ? listen : absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port);
}

}  // namespace sparkv
