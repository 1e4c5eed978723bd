#include "edge/net/shaped_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <deque>
#include <list>
#include <random>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/file.h"
#include "common/base/status.h"

namespace sparkv {
namespace {

constexpr size_t kChunkBytes = 8 << 10;
constexpr int kSocketBytes = 64 << 10;     // kernel buffers: what a cancel cannot call back
constexpr double kBacklogSeconds = 0.010;  // how far ahead of the link's clock bytes are taken in

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Fd {
  int value = -1;
  Fd() = default;
  explicit Fd(int fd) : value(fd) {}
  Fd(Fd&& other) noexcept : value(std::exchange(other.value, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(value, other.value);
    return *this;
  }
  ~Fd() {
    if (value >= 0) ::close(value);
  }
};

void Tune(int fd) {
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof(kSocketBytes));
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBytes, sizeof(kSocketBytes));
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

// One direction of the whole link, shared by all connections.
class Lane {
 public:
  Lane(const LinkOptions& options, uint64_t seed)
      : delay_s_(options.rtt_ms / 2000),
        jitter_s_(options.jitter_ms / 1000),
        bucket_(options.rate),
        rng_(seed) {}

  // When bytes offered now leave the link's sender, and when they arrive.
  std::pair<double, double> Book(uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    const double left = bucket_.Send(NowSeconds(), bytes);
    const double share = static_cast<double>(rng_() >> 11) * 0x1p-53;
    return {left, left + delay_s_ + jitter_s_ * share};
  }
  void SetRate(const RateTrace& rate) {
    absl::MutexLock lock(&mutex_);
    bucket_.SetRate(rate, NowSeconds());
  }

 private:
  const double delay_s_;
  const double jitter_s_;
  absl::Mutex mutex_;
  TokenBucket bucket_ ABSL_GUARDED_BY(mutex_);
  std::mt19937_64 rng_ ABSL_GUARDED_BY(mutex_);
};

// Carries one direction of one connection on a thread of its own.
class Pump {
 public:
  Pump(int from, int to, int stop, Lane* lane, std::atomic<uint64_t>* counter)
      : from_(from), to_(to), stop_(stop), lane_(lane), counter_(counter), thread_([this] {
          Run();
        }) {}
  ~Pump() { thread_.join(); }
  bool ended() const { return ended_.load(); }

 private:
  struct Chunk {
    double due;
    std::string bytes;
    size_t sent = 0;
  };

  void Run() {
    std::deque<Chunk> queue;
    double leaves = 0;   // when the last chunk taken in leaves the sender
    double arrives = 0;  // order is kept: no chunk arrives before the one ahead of it
    bool open = true;
    while (open || !queue.empty()) {
      const double now = NowSeconds();
      // A reader that takes nothing holds the sender up like a full link.
      const bool stuck = !queue.empty() && now - queue.front().due > kBacklogSeconds;
      const bool take = open && !stuck && leaves - now < kBacklogSeconds;
      const bool due = !queue.empty() && queue.front().due <= now;
      double wait = 1.0;
      if (open && !stuck && !take) wait = std::min(wait, leaves - now - kBacklogSeconds);
      if (!queue.empty() && !due) wait = std::min(wait, queue.front().due - now);
      pollfd fds[3] = {
          {stop_, POLLIN, 0}, {take ? from_ : -1, POLLIN, 0}, {due ? to_ : -1, POLLOUT, 0}};
      const timespec timeout{static_cast<time_t>(wait),
                             static_cast<long>((wait - std::floor(wait)) * 1e9)};
      const int ready = ::ppoll(fds, 3, wait > 0 ? &timeout : nullptr, nullptr);
      if (ready < 0 && errno != EINTR) break;
      if (fds[0].revents != 0) break;
      if (take && fds[1].revents != 0) {
        char buffer[kChunkBytes];
        const ssize_t n = ::recv(from_, buffer, sizeof(buffer), 0);
        if (n > 0) {
          double at;
          std::tie(leaves, at) = lane_->Book(static_cast<uint64_t>(n));
          arrives = std::max(arrives, at);
          queue.push_back({arrives, std::string(buffer, static_cast<size_t>(n))});
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
          open = false;
        }
      }
      if (due && fds[2].revents != 0) {
        Chunk& chunk = queue.front();
        const ssize_t n = ::send(to_, chunk.bytes.data() + chunk.sent,
                                 chunk.bytes.size() - chunk.sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) break;
        if (n > 0) {
          chunk.sent += static_cast<size_t>(n);
          if (counter_ != nullptr) counter_->fetch_add(static_cast<uint64_t>(n));
          if (chunk.sent == chunk.bytes.size()) queue.pop_front();
        }
      }
    }
    ::shutdown(to_, SHUT_WR);
    ::shutdown(from_, SHUT_RD);
    ended_.store(true);
  }

  const int from_;
  const int to_;
  const int stop_;
  Lane* const lane_;
  std::atomic<uint64_t>* const counter_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

struct Connection {
  Fd edge;
  Fd server;
  std::unique_ptr<Pump> up;
  std::unique_ptr<Pump> down;
  ~Connection() {  // pumps use the sockets
    up.reset();
    down.reset();
  }
};

class Relay final : public ShapedLink {
 public:
  Relay(const LinkOptions& options, sockaddr_storage target, socklen_t target_len, Fd listener,
        Fd stop, std::string address)
      : target_(target),
        target_len_(target_len),
        listener_(std::move(listener)),
        stop_(std::move(stop)),
        address_(std::move(address)),
        down_(options, options.seed),
        up_(options, options.seed + 1),
        thread_([this] { Accept(); }) {}

  ~Relay() override {
    const uint64_t one = 1;
    if (::write(stop_.value, &one, sizeof(one)) < 0) {
    }  // an eventfd write of 1 cannot fail
    thread_.join();
  }

  std::string address() const override { return address_; }
  void SetRate(const RateTrace& rate) override {
    down_.SetRate(rate);
    up_.SetRate(rate);
  }
  uint64_t bytes_to_edge() const override { return bytes_.load(); }

 private:
  void Accept() {
    std::list<Connection> connections;
    while (true) {
      pollfd fds[2] = {{stop_.value, POLLIN, 0}, {listener_.value, POLLIN, 0}};
      ::poll(fds, 2, 1000);
      if (fds[0].revents != 0) break;
      connections.remove_if([](const Connection& c) { return c.up->ended() && c.down->ended(); });
      if (fds[1].revents == 0) continue;
      Fd edge(::accept4(listener_.value, nullptr, nullptr, SOCK_CLOEXEC));
      if (edge.value < 0) continue;
      // A server that is not there shows as a connection that closes at once.
      Fd server(::socket(target_.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (server.value < 0) continue;
      Tune(server.value);
      if (::connect(server.value, reinterpret_cast<const sockaddr*>(&target_), target_len_) != 0) {
        if (errno != EINPROGRESS) continue;
        pollfd connecting[2] = {{server.value, POLLOUT, 0}, {stop_.value, POLLIN, 0}};
        ::poll(connecting, 2, 5000);
        int error = 0;
        socklen_t len = sizeof(error);
        ::getsockopt(server.value, SOL_SOCKET, SO_ERROR, &error, &len);
        if (error != 0 || connecting[0].revents == 0) continue;
      }
      Tune(edge.value);
      Connection& c = connections.emplace_back();
      c.edge = std::move(edge);
      c.server = std::move(server);
      c.up = std::make_unique<Pump>(c.edge.value, c.server.value, stop_.value, &up_, nullptr);
      c.down = std::make_unique<Pump>(c.server.value, c.edge.value, stop_.value, &down_, &bytes_);
    }
  }

  const sockaddr_storage target_;
  const socklen_t target_len_;
  Fd listener_;
  Fd stop_;
  const std::string address_;
  std::atomic<uint64_t> bytes_{0};
  Lane down_;
  Lane up_;
  std::thread thread_;
};

absl::Status Resolve(const std::string& target, sockaddr_storage* out, socklen_t* len) {
  const size_t colon = target.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == target.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a link target is HOST:PORT, got \"", target, "\""));
  }
  std::string host = target.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), target.substr(colon + 1).c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(absl::StrCat(target, ": ", ::gai_strerror(error)));
  absl::Cleanup release = [found] { ::freeaddrinfo(found); };
  std::copy_n(reinterpret_cast<const char*>(found->ai_addr), found->ai_addrlen,
              reinterpret_cast<char*>(out));
  *len = found->ai_addrlen;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShapedLink>> ShapedLink::Start(const std::string& target,
                                                              const LinkOptions& options) {
  for (const auto& [name, value] :
       {std::pair{"RTT", options.rtt_ms}, std::pair{"jitter", options.jitter_ms}}) {
    if (!(value >= 0 && value <= 60000)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a link ", name, " of ", value, " ms, allowed: 0..60000"));
    }
  }
  sockaddr_storage address{};
  socklen_t address_len = 0;
  RETURN_IF_ERROR(Resolve(target, &address, &address_len));
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.value < 0) return ErrnoStatus(errno, "socket");
  // Accepted sockets inherit the small buffers.
  ::setsockopt(listener.value, SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof(kSocketBytes));
  ::setsockopt(listener.value, SOL_SOCKET, SO_RCVBUF, &kSocketBytes, sizeof(kSocketBytes));
  sockaddr_in local{};
  local.sin_family = AF_INET;
  local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(listener.value, reinterpret_cast<sockaddr*>(&local), sizeof(local)) != 0 ||
      ::listen(listener.value, 64) != 0) {
    return ErrnoStatus(errno, "listening for the shaped link");
  }
  socklen_t len = sizeof(local);
  if (::getsockname(listener.value, reinterpret_cast<sockaddr*>(&local), &len) != 0)
    return ErrnoStatus(errno, "getsockname");
  Fd stop(::eventfd(0, EFD_CLOEXEC));
  if (stop.value < 0) return ErrnoStatus(errno, "eventfd");
  return std::unique_ptr<ShapedLink>(new Relay(options, address, address_len, std::move(listener),
                                               std::move(stop),
                                               absl::StrCat("127.0.0.1:", ntohs(local.sin_port))));
}

}  // namespace sparkv
