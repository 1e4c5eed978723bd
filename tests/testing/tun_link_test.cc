#include "tests/testing/tun_link.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <iostream>
#include <random>

#include "tests/catch.h"

namespace sparkv::testing {
namespace {

TEST_CASE("a lane spaces packets by its rate and delays them") {
  TunLane lane({.mbit = 8, .delay_ms = 10});  // 1 MB/s
  CHECK(*lane.Deliver(0, 1000) == Approx(0.011));
  CHECK(*lane.Deliver(0, 1000) == Approx(0.012));
  CHECK(*lane.Deliver(5, 1000) == Approx(5.011));
}

TEST_CASE("a lane drops what its queue cannot hold") {
  TunLane lane({.mbit = 8, .queue_ms = 5.5});
  int through = 0;
  for (int i = 0; i < 20; ++i) through += lane.Deliver(0, 1000).has_value();
  CHECK(through == 6);  // the first goes at once, five wait 1 to 5 ms
  CHECK(lane.counters().overflowed == 14);
}

TEST_CASE("a lane's losses and reorderings follow its seed and its shares") {
  const auto fates = [](uint64_t seed) {
    TunLane lane({.loss = 0.1, .reorder = 0.2, .reorder_ms = 50, .seed = seed});
    std::vector<double> due;
    for (int i = 0; i < 5000; ++i) due.push_back(lane.Deliver(i, 100).value_or(-1));
    CHECK(lane.counters().lost > 400);
    CHECK(lane.counters().lost < 600);
    CHECK(lane.counters().reordered > 700);
    CHECK(lane.counters().reordered < 1100);
    return due;
  };
  CHECK(fates(3) == fates(3));
  CHECK(fates(3) != fates(4));
}

TEST_CASE(
    "TCP between two namespaces gets its bytes whole and in order over a link that loses and "
    "reorders") {
  if (const std::string reason = TunLink::WhyNot(); !reason.empty()) SKIP(reason);
  auto link = TunLink::Create(
      {.mbit = 100, .delay_ms = 1, .loss = 0.01, .reorder = 0.02, .reorder_ms = 3, .seed = 5});
  REQUIRE_OK(link);
  int listener = -1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, TunLink::kAddress[1], &address.sin_addr);
  (*link)->RunIn(1, [&] {
    listener = ::socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(::listen(listener, 1) == 0);
    socklen_t len = sizeof(address);
    REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &len) == 0);
  });
  std::mt19937 rng(1);
  std::string sent(2 << 20, 0);
  for (char& c : sent) c = static_cast<char>(rng());
  std::thread server([&] {
    const int peer = ::accept(listener, nullptr, nullptr);
    for (size_t done = 0; done < sent.size();) {
      const ssize_t n = ::send(peer, sent.data() + done, sent.size() - done, MSG_NOSIGNAL);
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    ::close(peer);
  });
  // The addresses exist in the namespaces only.
  int client = -1;
  (*link)->RunIn(0, [&] { client = ::socket(AF_INET, SOCK_STREAM, 0); });
  REQUIRE(::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  std::string got;
  char buffer[8192];
  for (ssize_t n; (n = ::recv(client, buffer, sizeof(buffer), 0)) > 0;)
    got.append(buffer, static_cast<size_t>(n));
  server.join();
  ::close(client);
  ::close(listener);
  CHECK(got == sent);
  const TunCounters down = (*link)->counters(1);
  std::cout << "2 MiB in " << down.packets << " packets, " << down.lost << " lost, "
            << down.reordered << " reordered\n";
  CHECK(down.lost > 0);
  CHECK(down.reordered > 0);
  CHECK(down.bytes >= sent.size());
}

}  // namespace
}  // namespace sparkv::testing
