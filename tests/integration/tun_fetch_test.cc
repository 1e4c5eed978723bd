// A real sparkv-server in one network namespace and the receiver in another, with a link between
// them that delays, drops, reorders and limits packets.
#include <iostream>

#include "common/codec/codec.h"
#include "common/llm/model.h"
#include "edge/net/server_client.h"
#include "tests/catch.h"
#include "tests/integration/server_process.h"
#include "tests/testing/tun_link.h"

namespace sparkv {
namespace {

using testing::BuiltProgram;
using testing::TempFolder;
using testing::TestModel;
using testing::TunLink;

class CountingSink final : public ItemSink {
 public:
  void OnItem(const ItemRef& item, std::string bytes) override {
    absl::MutexLock lock(&mutex_);
    order_.push_back(item);
    bytes_ += bytes.size();
  }
  void OnItemFailed(const ItemRef&, const absl::Status& status) override { Trouble(status); }
  void OnBroken(const absl::Status& status) override { Trouble(status); }
  // Waits for n items or for trouble.
  absl::Status Await(size_t n) {
    const auto ended = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return order_.size() >= n || !trouble_.ok();
    };
    absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithTimeout(absl::Condition(&ended), absl::Minutes(5))) {
      return absl::DeadlineExceededError("the items did not come within 5 minutes");
    }
    return trouble_;
  }
  std::vector<ItemRef> order() {
    absl::MutexLock lock(&mutex_);
    return order_;
  }
  uint64_t bytes() {
    absl::MutexLock lock(&mutex_);
    return bytes_;
  }

 private:
  void Trouble(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    trouble_.Update(status);
  }
  absl::Mutex mutex_;
  std::vector<ItemRef> order_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status trouble_ ABSL_GUARDED_BY(mutex_);
};

TEST_CASE(
    "a context comes whole over a link that loses and reorders packets, and a cut link lets go at "
    "once") {
  if (const std::string reason = TunLink::WhyNot(); !reason.empty()) SKIP(reason);
  SPARKV_NEED_MODEL();
  auto link =
      TunLink::Create({.mbit = 60, .delay_ms = 3, .loss = 0.005, .reorder = 0.01, .seed = 11});
  REQUIRE_OK(link);
  // gRPC's threads must be born in the edge's namespace: this thread stays there.
  (*link)->Enter(0);
  TempFolder folder;
  std::unique_ptr<cli::Subprocess> server;
  (*link)->RunIn(1, [&] {
    auto started = cli::Subprocess::Start(
        {BuiltProgram("server/sparkv-server"), "--listen", std::string(TunLink::kAddress[1]) + ":0",
         "--model", TestModel(), "--data-dir", folder.path() + "/server", "--insecure"},
        folder.path() + "/server.log");
    REQUIRE_OK(started);
    server = *std::move(started);
  });
  const auto address = server->ReadUntil("listening on ", absl::Minutes(2));
  REQUIRE_OK(address);
  auto client = ServerClient::Create(*address, {});
  REQUIRE_OK(client);

  v1::PrecomputeRequest request;
  for (int i = 0; i < 400; ++i) request.add_tokens(100 + i * 37 % 5000);
  const auto info = (*client)->Precompute(request, nullptr, {});
  REQUIRE_OK(info);
  Digest id;
  REQUIRE(info->context_id().size() == id.size());
  std::copy(info->context_id().begin(), info->context_id().end(), id.begin());
  const auto manifest = (*client)->Lookup(id, absl::Minutes(1));
  REQUIRE_OK(manifest);

  std::vector<ItemRef> items;
  uint64_t bytes = 0;
  for (uint32_t l = 0; l < manifest->geometry.layers; ++l) {
    for (uint32_t p = 0; p < manifest->planes; ++p) {
      items.push_back({0, l, p});
      bytes += manifest->item(0, l, p).bytes;
    }
  }
  const FetchOptions options{.context_id = id,
                             .model_fingerprint = manifest->model_fingerprint,
                             .codec_digest = manifest->codec_digest,
                             .window_bytes = 512 << 10};
  {
    CountingSink sink;
    auto stream = (*client)->Fetch(options, *manifest);
    stream->Start(&sink);
    stream->Order(items, false);
    REQUIRE_OK(sink.Await(items.size()));
    stream->Stop();
    CHECK(sink.order() == items);  // each with the manifest's length and checksum, or it had failed
    CHECK(sink.bytes() == bytes);
  }
  const testing::TunCounters down = (*link)->counters(1);
  std::cout << bytes << " bytes in " << down.packets << " packets, " << down.lost << " lost, "
            << down.reordered << " reordered\n";
  CHECK(down.lost > 0);
  CHECK(down.reordered > 0);

  CountingSink sink;
  auto stream = (*client)->Fetch(options, *manifest);
  stream->Start(&sink);
  stream->Order({items[0], items[1]}, false);
  REQUIRE_OK(sink.Await(2));
  (*link)->SetLoss(1);
  stream->Order(items, false);
  stream->Stop();  // no packet can tell the server, and it returns all the same
  stream.reset();
  CHECK(sink.order().size() == 2);
}

}  // namespace
}  // namespace sparkv
