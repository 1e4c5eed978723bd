#include "edge/net/shaped_link.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <random>
#include <string>
#include <thread>

#include "tests/catch.h"

namespace sparkv {
namespace {

// A listener on loopback that answers what it reads, until the peer closes.
class EchoServer {
 public:
  EchoServer() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(::listen(fd_, 8) == 0);
    socklen_t len = sizeof(address);
    REQUIRE(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &len) == 0);
    port = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      const int peer = ::accept(fd_, nullptr, nullptr);
      char buffer[4096];
      for (ssize_t n; peer >= 0 && (n = ::recv(peer, buffer, sizeof(buffer), 0)) > 0;) {
        for (ssize_t sent = 0; sent < n;) {
          const ssize_t m =
              ::send(peer, buffer + sent, static_cast<size_t>(n - sent), MSG_NOSIGNAL);
          if (m <= 0) break;
          sent += m;
        }
      }
      if (peer >= 0) ::close(peer);
    });
  }
  ~EchoServer() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  int port;

 private:
  int fd_;
  std::thread thread_;
};

int Connect(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);
  return fd;
}

TEST_CASE("bytes pass a shaped link whole and in order, jitter or not") {
  EchoServer echo;
  LinkOptions options;
  options.rate = *RateTrace::Constant(40);
  options.rtt_ms = 10;
  options.jitter_ms = 5;
  auto link = ShapedLink::Start("127.0.0.1:" + std::to_string(echo.port), options);
  REQUIRE_OK(link);
  std::mt19937 rng(7);
  std::string sent(300000, 0);
  for (char& c : sent) c = static_cast<char>(rng());
  const int fd = Connect((*link)->address());
  const auto begin = std::chrono::steady_clock::now();
  std::thread writer([&] {
    for (size_t done = 0; done < sent.size();) {
      const ssize_t n = ::send(fd, sent.data() + done, sent.size() - done, MSG_NOSIGNAL);
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    ::shutdown(fd, SHUT_WR);
  });
  std::string got;
  char buffer[4096];
  for (ssize_t n; (n = ::recv(fd, buffer, sizeof(buffer), 0)) > 0;)
    got.append(buffer, static_cast<size_t>(n));
  writer.join();
  ::close(fd);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::cout << "300 kB there and back over 40 Mbit/s: " << seconds * 1000
            << " ms (60 ms at the rate)\n";
  CHECK(got == sent);
  CHECK((*link)->bytes_to_edge() == sent.size());
}

TEST_CASE("a link whose server is not there closes the connection, and stops with one open") {
  EchoServer echo;
  auto dead = ShapedLink::Start("127.0.0.1:1", {});
  REQUIRE_OK(dead);
  const int fd = Connect((*dead)->address());
  char byte;
  CHECK(::recv(fd, &byte, 1, 0) <= 0);
  ::close(fd);
  auto link = ShapedLink::Start("127.0.0.1:" + std::to_string(echo.port), {});
  REQUIRE_OK(link);
  const int open = Connect((*link)->address());
  link->reset();  // joins its threads
  CHECK(::recv(open, &byte, 1, 0) <= 0);
  ::close(open);
}

TEST_CASE("a reader that takes nothing holds the sender up, and loses nothing") {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(::listen(listener, 1) == 0);
  socklen_t len = sizeof(address);
  REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &len) == 0);
  LinkOptions options;
  options.rate = *RateTrace::Constant(80);
  auto link = ShapedLink::Start("127.0.0.1:" + std::to_string(ntohs(address.sin_port)), options);
  REQUIRE_OK(link);
  const int reader = Connect((*link)->address());
  const int sender = ::accept(listener, nullptr, nullptr);
  REQUIRE(sender >= 0);
  const std::string chunk(4096, 'x');
  constexpr size_t kFar = 16 << 20;  // 1.6 s at the rate
  size_t sent = 0;
  for (pollfd writable{sender, POLLOUT, 0}; sent < kFar && ::poll(&writable, 1, 500) == 1;) {
    const ssize_t n = ::send(sender, chunk.data(), chunk.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) sent += static_cast<size_t>(n);
  }
  // What the kernel's buffers and 10 ms of the link hold, on its way to a full stop.
  CHECK(sent < kFar / 2);
  ::shutdown(sender, SHUT_WR);
  size_t got = 0;
  std::string buffer(65536, 0);
  for (ssize_t n; (n = ::recv(reader, buffer.data(), buffer.size(), 0)) > 0;)
    got += static_cast<size_t>(n);
  CHECK(got == sent);
  for (const int fd : {reader, sender, listener}) ::close(fd);
}

TEST_CASE("bad targets and options are refused") {
  CHECK(ShapedLink::Start("no-port", {}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ShapedLink::Start(":1", {}).status().code() == absl::StatusCode::kInvalidArgument);
  LinkOptions options;
  options.rtt_ms = -1;
  CHECK(ShapedLink::Start("127.0.0.1:1", options).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sparkv
