// A TCP relay that flips one bit of what the server sends: what a broken router or a bad cable past
// its checksums does.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"

namespace sparkv::testing {

class FlippingRelay {
 public:
  // Forwards connections to 127.0.0.1:port. Once Arm was called, the byte `offset` bytes later on
  // the way to the client is damaged.
  explicit FlippingRelay(const std::string& target)
      : port_(static_cast<uint16_t>(std::stoi(target.substr(target.rfind(':') + 1)))) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = Loopback(0);
    REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(listener_, 8) == 0);
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~FlippingRelay() {
    ending_ = true;
    acceptor_.join();
    for (std::thread& thread : relays_) thread.join();
    close(listener_);
  }
  const std::string& address() const { return address_; }
  void Arm(int64_t offset) { left_ = offset; }
  bool flipped() const { return flipped_; }

 private:
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  void Accept() {
    while (!ending_) {
      pollfd waiting{listener_, POLLIN, 0};
      if (poll(&waiting, 1, 20) <= 0) continue;
      const int client = accept(listener_, nullptr, nullptr);
      const int server = socket(AF_INET, SOCK_STREAM, 0);
      const sockaddr_in address = Loopback(port_);
      if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        close(client);
        close(server);
        continue;
      }
      relays_.emplace_back([this, client, server] { Relay(client, server); });
    }
  }
  void Relay(int client, int server) {
    std::vector<char> buffer(1 << 16);
    bool open = true;
    while (open && !ending_) {
      pollfd sides[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
      if (poll(sides, 2, 20) <= 0) continue;
      for (int i = 0; i < 2 && open; ++i) {
        if (sides[i].revents == 0) continue;
        const ssize_t n = recv(sides[i].fd, buffer.data(), buffer.size(), 0);
        if (n <= 0) {
          open = false;
          break;
        }
        if (i == 1) Damage(buffer.data(), n);
        ssize_t sent = 0;
        while (sent < n) {
          const ssize_t m = send(sides[1 - i].fd, buffer.data() + sent,
                                 static_cast<size_t>(n - sent), MSG_NOSIGNAL);
          if (m <= 0) break;
          sent += m;
        }
      }
    }
    close(client);
    close(server);
  }
  void Damage(char* data, ssize_t n) {
    const int64_t left = left_.load();
    if (left < 0) return;
    if (left < n) {
      data[left] = static_cast<char>(data[left] ^ 0x10);
      left_ = -1;
      flipped_ = true;
    } else {
      left_ = left - n;
    }
  }

  const uint16_t port_;
  int listener_ = -1;
  std::string address_;
  std::atomic<bool> ending_{false};
  std::atomic<bool> flipped_{false};
  std::atomic<int64_t> left_{-1};
  std::thread acceptor_;
  std::vector<std::thread> relays_;
};

}  // namespace sparkv::testing
