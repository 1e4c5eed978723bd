#include "tests/testing/tun_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <queue>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace sparkv::testing {
namespace {

constexpr size_t kMaxPacket = 65536;
constexpr const char* kDevice = "sparkvtun";

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

absl::Status Failed(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::Status BringUp(int socket, const char* name) {
  ifreq request{};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  if (::ioctl(socket, SIOCGIFFLAGS, &request) != 0) return Failed("SIOCGIFFLAGS");
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP | IFF_RUNNING);
  if (::ioctl(socket, SIOCSIFFLAGS, &request) != 0) return Failed("SIOCSIFFLAGS");
  return absl::OkStatus();
}

absl::Status SetAddress(int socket, unsigned long what, const char* address) {
  ifreq request{};
  std::strncpy(request.ifr_name, kDevice, IFNAMSIZ - 1);
  sockaddr_in in{};
  in.sin_family = AF_INET;
  ::inet_pton(AF_INET, address, &in.sin_addr);
  std::memcpy(&request.ifr_addr, &in, sizeof(in));
  if (::ioctl(socket, what, &request) != 0) return Failed("setting the TUN device's address");
  return absl::OkStatus();
}

// On a thread of its own: a new namespace with one TUN device and loopback up. Both outlive the
// thread by their descriptors.
absl::Status MakeSide(const char* address, int* name_space, int* tun) {
  if (::unshare(CLONE_NEWNET) != 0) return Failed("unshare(CLONE_NEWNET)");
  *name_space = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (*name_space < 0) return Failed("/proc/thread-self/ns/net");
  *tun = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (*tun < 0) return Failed("/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, kDevice, IFNAMSIZ - 1);
  if (::ioctl(*tun, TUNSETIFF, &request) != 0) return Failed("TUNSETIFF");
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return Failed("socket");
  const absl::Cleanup close = [socket] { ::close(socket); };
  RETURN_IF_ERROR(SetAddress(socket, SIOCSIFADDR, address));
  RETURN_IF_ERROR(SetAddress(socket, SIOCSIFNETMASK, "255.255.255.252"));
  RETURN_IF_ERROR(BringUp(socket, kDevice));
  return BringUp(socket, "lo");
}

absl::Status MakeSideOnThread(const char* address, int* name_space, int* tun) {
  absl::Status status;
  std::thread([&] { status = MakeSide(address, name_space, tun); }).join();
  return status;
}

struct Packet {
  double due;
  uint64_t number;  // packets that are due at once keep their order
  int to;
  std::vector<char> bytes;
  bool operator<(const Packet& other) const {  // for a queue whose top is the earliest
    return due != other.due ? due > other.due : number > other.number;
  }
};

}  // namespace

std::string TunLink::WhyNot() {
  int name_space = -1, tun = -1;
  const absl::Status status = MakeSideOnThread("10.77.1.1", &name_space, &tun);
  if (name_space >= 0) ::close(name_space);
  if (tun >= 0) ::close(tun);
  return status.ok()
             ? ""
             : absl::StrCat("a TUN link needs CAP_NET_ADMIN and a TUN device: ", status.message());
}

TunLink::TunLink(const TunOptions& options)
    : lane_{TunLane(options), TunLane([&] {
              TunOptions back = options;
              back.seed = options.seed * 7919 + 1;
              return back;
            }())} {}

absl::StatusOr<std::unique_ptr<TunLink>> TunLink::Create(const TunOptions& options) {
  std::unique_ptr<TunLink> link(new TunLink(options));
  for (int side = 0; side < 2; ++side) {
    RETURN_IF_ERROR(MakeSideOnThread(kAddress[side], &link->namespace_[side], &link->tun_[side]));
  }
  link->stop_ = ::eventfd(0, EFD_CLOEXEC);
  if (link->stop_ < 0) return Failed("eventfd");
  link->router_ = std::thread([raw = link.get()] { raw->Route(); });
  return link;
}

TunLink::~TunLink() {
  if (router_.joinable()) {
    const uint64_t one = 1;
    if (::write(stop_, &one, sizeof(one)) < 0) std::abort();  // an eventfd write of 1 cannot fail
    router_.join();
  }
  for (const int fd : {namespace_[0], namespace_[1], tun_[0], tun_[1], stop_}) {
    if (fd >= 0) ::close(fd);
  }
}

void TunLink::Enter(int side) const {
  if (::setns(namespace_[side], CLONE_NEWNET) != 0) std::abort();  // Create made the namespace
}

void TunLink::RunIn(int side, const std::function<void()>& fn) const {
  const int home = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (home < 0) std::abort();
  const absl::Cleanup back = [home] {
    if (::setns(home, CLONE_NEWNET) != 0) std::abort();
    ::close(home);
  };
  Enter(side);
  fn();
}

void TunLink::SetLoss(double loss) {
  absl::MutexLock lock(&mutex_);
  for (TunLane& lane : lane_) lane.SetLoss(loss);
}

TunCounters TunLink::counters(int side) const {
  absl::MutexLock lock(&mutex_);
  return lane_[side].counters();
}

void TunLink::Route() {
  std::priority_queue<Packet> queue;
  uint64_t number = 0;
  std::vector<char> buffer(kMaxPacket);
  while (true) {
    double wait = 1;
    if (!queue.empty()) wait = std::clamp(queue.top().due - NowSeconds(), 0.0, 1.0);
    const timespec timeout{static_cast<time_t>(wait),
                           static_cast<long>((wait - std::floor(wait)) * 1e9)};
    pollfd fds[3] = {{stop_, POLLIN, 0}, {tun_[0], POLLIN, 0}, {tun_[1], POLLIN, 0}};
    ::ppoll(fds, 3, &timeout, nullptr);
    if (fds[0].revents != 0) return;
    for (int side = 0; side < 2; ++side) {
      if ((fds[1 + side].revents & POLLIN) == 0) continue;
      constexpr int kBurst = 64;  // then the other side has its turn
      for (int i = 0; i < kBurst; ++i) {
        const ssize_t n = ::read(tun_[side], buffer.data(), buffer.size());
        if (n <= 0) break;
        absl::MutexLock lock(&mutex_);
        const auto due = lane_[side].Deliver(NowSeconds(), static_cast<size_t>(n));
        if (due.has_value())
          queue.push({*due, number++, 1 - side, {buffer.data(), buffer.data() + n}});
      }
    }
    while (!queue.empty() && queue.top().due <= NowSeconds()) {
      const Packet& packet = queue.top();
      // A full device drops, as any router's interface does.
      if (::write(tun_[packet.to], packet.bytes.data(), packet.bytes.size()) < 0 && errno == EBADF)
        return;
      queue.pop();
    }
  }
}

}  // namespace sparkv::testing
