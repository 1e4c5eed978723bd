// The receiver and the client against a gRPC server that does what each case says, right or wrong.
#include "edge/net/receiver.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/base/bytes.h"
#include "common/base/crc32c.h"
#include "common/rpc/wire.h"
#include "edge/net/server_client.h"
#include "tests/catch.h"

namespace sparkv {
namespace {

using Stream = grpc::ServerReaderWriter<v1::FetchResponse, v1::FetchRequest>;

constexpr uint32_t kLayers = 2, kPlanes = 2;
const absl::Duration kPatience = absl::Seconds(60);

std::string ItemBytes(const ItemRef& item) {
  const uint32_t n = item.column * kLayers * kPlanes + item.layer * kPlanes + item.plane;
  std::string bytes(100000 + 300000 * item.plane + n, 0);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + n + (i >> 9));
  return bytes;
}

Manifest TestManifest() {
  Manifest m;
  m.context_id.fill(1);
  m.model_fingerprint.fill(2);
  m.codec_digest.fill(3);
  m.codec = "generic";
  m.geometry = {kLayers, 1, 64, KvDtype::kF16};
  m.planes = kPlanes;
  m.tokens.assign(1500, 5);
  for (uint32_t t = 0; t < 2; ++t) {
    ManifestColumn column;
    column.key.fill(t == 0 ? 7 : 1);
    column.tokens = ColumnTokens(1500, t);
    for (uint32_t l = 0; l < kLayers; ++l) {
      for (uint32_t p = 0; p < kPlanes; ++p) {
        const std::string bytes = ItemBytes({t, l, p});
        column.items.push_back({static_cast<uint32_t>(bytes.size()), Crc32c(AsBytes(bytes))});
      }
    }
    m.columns.push_back(std::move(column));
  }
  return m;
}

std::vector<ItemRef> AllItems() {
  std::vector<ItemRef> items;
  for (uint32_t t = 0; t < 2; ++t) {
    for (uint32_t l = 0; l < kLayers; ++l) {
      for (uint32_t p = 0; p < kPlanes; ++p) items.push_back({t, l, p});
    }
  }
  return items;
}

std::vector<ItemRef> FromProto(const google::protobuf::RepeatedPtrField<v1::ItemRef>& items) {
  std::vector<ItemRef> out;
  for (const v1::ItemRef& item : items) out.push_back({item.column(), item.layer(), item.plane()});
  return out;
}

v1::FetchResponse Frame(const ItemRef& item, uint32_t offset, const std::string& data, bool last) {
  v1::FetchResponse response;
  v1::FetchResponse::Frame& frame = *response.mutable_frame();
  frame.mutable_item()->set_column(item.column);
  frame.mutable_item()->set_layer(item.layer);
  frame.mutable_item()->set_plane(item.plane);
  frame.set_offset(offset);
  frame.set_data(data);
  frame.set_last(last);
  return response;
}

void SendItem(Stream* stream, const ItemRef& item, size_t frame_bytes = kMaxFrameBytes,
              std::string bytes = "") {
  if (bytes.empty()) bytes = ItemBytes(item);
  for (size_t at = 0; at < bytes.size(); at += frame_bytes) {
    stream->Write(Frame(item, static_cast<uint32_t>(at), bytes.substr(at, frame_bytes),
                        at + frame_bytes >= bytes.size()));
  }
}

class FakeServer final : public v1::KvCache::Service {
 public:
  FakeServer() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    address = "127.0.0.1:" + std::to_string(port);
  }
  ~FakeServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status Fetch(grpc::ServerContext* context, Stream* stream) override {
    v1::FetchRequest request;
    if (!stream->Read(&request) || !request.has_open())
      return {grpc::StatusCode::INVALID_ARGUMENT, "no open"};
    open = request.open();
    v1::FetchResponse response;
    response.mutable_opened()->set_columns(2);
    stream->Write(response);
    const grpc::Status status = fetch(context, stream);
    ended.store(true);
    return status;
  }
  grpc::Status Lookup(grpc::ServerContext* context, const v1::LookupRequest*,
                      v1::Manifest* out) override {
    return lookup(context, out);
  }
  grpc::Status Precompute(grpc::ServerContext* context, const v1::PrecomputeRequest*,
                          grpc::ServerWriter<v1::PrecomputeProgress>* writer) override {
    v1::PrecomputeProgress progress;
    progress.set_tokens_done(1);
    writer->Write(progress);
    while (!context->IsCancelled()) std::this_thread::yield();
    ended.store(true);
    return grpc::Status::CANCELLED;
  }

  std::function<grpc::Status(grpc::ServerContext*, Stream*)> fetch;
  std::function<grpc::Status(grpc::ServerContext*, v1::Manifest*)> lookup;
  std::string address;
  v1::FetchRequest::Open open;
  std::atomic<bool> ended{false};

 private:
  std::unique_ptr<grpc::Server> server_;
};

class Sink final : public ItemSink {
 public:
  void OnItem(const ItemRef& item, std::string bytes) override {
    absl::MutexLock lock(&mutex_);
    items_.emplace_back(item, std::move(bytes));
  }
  void OnItemFailed(const ItemRef& item, const absl::Status& status) override {
    absl::MutexLock lock(&mutex_);
    failed_.emplace_back(item, status);
  }
  void OnBroken(const absl::Status& status) override {
    absl::MutexLock lock(&mutex_);
    broken_ = status;
  }
  // Waits until this many items have come or failed.
  bool Await(size_t n) {
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return items_.size() + failed_.size() >= n;
    };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience);
  }
  absl::Status AwaitBroken() {
    const auto broken = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return broken_.has_value(); };
    absl::MutexLock lock(&mutex_);
    REQUIRE(mutex_.AwaitWithTimeout(absl::Condition(&broken), kPatience));
    return *broken_;
  }
  auto items() {
    absl::MutexLock lock(&mutex_);
    return items_;
  }
  auto failed() {
    absl::MutexLock lock(&mutex_);
    return failed_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::pair<ItemRef, std::string>> items_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<ItemRef, absl::Status>> failed_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> broken_ ABSL_GUARDED_BY(mutex_);
};

struct Client {
  explicit Client(const std::string& address) {
    auto created = ServerClient::Create(address, {}, "cloud");
    REQUIRE_OK(created);
    client = *std::move(created);
  }
  std::unique_ptr<ItemStream> Fetch(uint64_t window = 0) {
    return client->Fetch({.context_id = manifest.context_id,
                          .model_fingerprint = manifest.model_fingerprint,
                          .codec_digest = manifest.codec_digest,
                          .window_bytes = window},
                         manifest);
  }
  std::unique_ptr<ServerClient> client;
  const Manifest manifest = TestManifest();
};

void AwaitEnd(const FakeServer& server) {
  while (!server.ended.load()) std::this_thread::yield();
}

TEST_CASE("items are put together from frames of any size, and credit comes back for every byte") {
  for (const size_t frame_bytes : {size_t{kMaxFrameBytes}, size_t{1000}, size_t{65537}}) {
    FakeServer server;
    uint64_t credit = 0, sent = 0;
    std::vector<ItemRef> ordered;
    server.fetch = [&](grpc::ServerContext*, Stream* stream) {
      v1::FetchRequest request;
      if (!stream->Read(&request)) return grpc::Status::OK;
      ordered = FromProto(request.order().items());
      for (const ItemRef& item : ordered) {
        SendItem(stream, item, frame_bytes);
        sent += ItemBytes(item).size();
      }
      while (credit < sent && stream->Read(&request)) credit += request.window().consumed_bytes();
      return grpc::Status::OK;
    };
    Client client(server.address);
    Sink sink;
    auto stream = client.Fetch(700000);
    stream->Start(&sink);
    stream->Order(AllItems(), false);
    REQUIRE(sink.Await(8));
    CHECK(sink.AwaitBroken().code() ==
          absl::StatusCode::kUnavailable);  // the server's Ok is no end that was asked for
    stream->Stop();
    CHECK(ordered == AllItems());
    CHECK(server.open.window_bytes() == 700000);
    CHECK(credit == sent);
    CHECK(stream->bytes_received() == sent);
    const auto items = sink.items();
    REQUIRE(items.size() == 8);
    for (size_t i = 0; i < 8; ++i) {
      CHECK(items[i].first == ordered[i]);
      CHECK(items[i].second == ItemBytes(ordered[i]));
    }
  }
}

TEST_CASE("an item with a flipped byte or too few bytes fails alone") {
  FakeServer server;
  server.fetch = [&](grpc::ServerContext* context, Stream* stream) {
    v1::FetchRequest request;
    stream->Read(&request);
    std::string flipped = ItemBytes({0, 0, 0});
    flipped[77] ^= 4;
    SendItem(stream, {0, 0, 0}, kMaxFrameBytes, flipped);
    SendItem(stream, {0, 0, 1}, kMaxFrameBytes, ItemBytes({0, 0, 1}).substr(0, 300000));
    v1::FetchResponse failed;
    failed.mutable_failed()->mutable_item()->set_layer(1);
    failed.mutable_failed()->set_code(15);
    failed.mutable_failed()->set_message("stored bytes are damaged");
    stream->Write(failed);
    SendItem(stream, {1, 1, 1});
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::OK;
  };
  Client client(server.address);
  Sink sink;
  auto stream = client.Fetch();
  stream->Start(&sink);
  stream->Order(AllItems(), false);
  REQUIRE(sink.Await(4));
  stream->Stop();
  REQUIRE(sink.items().size() == 1);
  CHECK(sink.items()[0].first == ItemRef{1, 1, 1});
  const auto failed = sink.failed();
  REQUIRE(failed.size() == 3);
  for (const auto& [item, status] : failed) CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(failed[0].first == ItemRef{0, 0, 0});
  CHECK(failed[1].first == ItemRef{0, 0, 1});
  CHECK(failed[2].first == ItemRef{0, 1, 0});
  CHECK(failed[2].second.message() == "stored bytes are damaged");
}

TEST_CASE("frames that break the protocol end the stream, and the call") {
  const std::string some(1000, 'x');
  const std::vector<std::vector<v1::FetchResponse>> bad = {
      {Frame({2, 0, 0}, 0, some, false)},                                       // no such column
      {Frame({0, kLayers, 0}, 0, some, false)},                                 // no such layer
      {Frame({0, 0, kPlanes}, 0, some, false)},                                 // no such plane
      {Frame({0, 0, 0}, 1000, some, false)},                                    // does not begin
      {Frame({0, 0, 0}, 0, some, false), Frame({0, 0, 0}, 1001, some, false)},  // a gap
      {Frame({0, 0, 0}, 0, some, false), Frame({0, 0, 1}, 1000, some, false)},  // another item's
      {Frame({0, 0, 0}, 0, std::string(100001, 'x'), false)},              // more than the item
      {Frame({0, 0, 1}, 0, std::string(kMaxFrameBytes + 1, 'x'), false)},  // more than a frame
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    FakeServer server;
    server.fetch = [&](grpc::ServerContext* context, Stream* stream) {
      for (const v1::FetchResponse& frame : bad[i]) stream->Write(frame);
      while (!context->IsCancelled()) std::this_thread::yield();
      return grpc::Status::OK;
    };
    Client client(server.address);
    Sink sink;
    auto stream = client.Fetch();
    stream->Start(&sink);
    stream->Order(AllItems(), false);
    const absl::Status broken = sink.AwaitBroken();
    INFO("case " << i << ": " << broken.ToString());
    CHECK(broken.code() == absl::StatusCode::kDataLoss);
    CHECK(broken.message().find("server cloud: ") == 0);
    CHECK(sink.items().empty());
    AwaitEnd(server);  // the call was cancelled
  }
}

TEST_CASE("an item that is cancelled half-way leaves nothing behind") {
  FakeServer server;
  std::vector<v1::FetchRequest> seen;
  server.fetch = [&](grpc::ServerContext* context, Stream* stream) {
    v1::FetchRequest request;
    stream->Read(&request);
    seen.push_back(request);
    stream->Write(Frame({0, 0, 1}, 0, ItemBytes({0, 0, 1}).substr(0, 1000), false));
    while (stream->Read(&request) && !request.has_cancel()) {
    }
    seen.push_back(request);
    stream->Read(&request);
    seen.push_back(request);
    v1::FetchResponse cancelled;
    cancelled.mutable_cancelled()->mutable_item()->set_plane(1);
    stream->Write(cancelled);
    SendItem(stream, {1, 0, 0});
    SendItem(stream, {0, 0, 1});  // and again, ordered anew
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::OK;
  };
  Client client(server.address);
  Sink sink;
  auto stream = client.Fetch();
  stream->Start(&sink);
  stream->Order({{0, 0, 1}, {0, 1, 0}}, false);
  while (stream->bytes_received() < 1000) std::this_thread::yield();
  stream->Cancel({{0, 0, 1}});
  stream->Order({{1, 0, 0}, {0, 0, 1}}, true);
  REQUIRE(sink.Await(2));
  stream->Stop();
  const auto items = sink.items();
  REQUIRE(items.size() == 2);
  CHECK(items[0].second == ItemBytes({1, 0, 0}));
  CHECK(items[1].second == ItemBytes({0, 0, 1}));
  REQUIRE(seen.size() == 3);
  CHECK_FALSE(seen[0].order().replace());
  CHECK(FromProto(seen[1].cancel().items()) == std::vector<ItemRef>{{0, 0, 1}});
  CHECK(seen[2].order().replace());
  CHECK(FromProto(seen[2].order().items()) == std::vector<ItemRef>{{1, 0, 0}, {0, 0, 1}});
}

TEST_CASE("the server's error ends the stream with its code and the server's name") {
  FakeServer server;
  server.fetch = [&](grpc::ServerContext*, Stream* stream) {
    SendItem(stream, {0, 0, 0});
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such context");
  };
  Client client(server.address);
  Sink sink;
  auto stream = client.Fetch();
  stream->Start(&sink);
  stream->Order(AllItems(), false);
  const absl::Status broken = sink.AwaitBroken();
  CHECK(broken == absl::NotFoundError("server cloud: no such context"));
  CHECK(sink.items().size() == 1);
}

TEST_CASE("Stop ends a fetch whose server says nothing, and no event comes after it") {
  FakeServer server;
  server.fetch = [&](grpc::ServerContext* context, Stream*) {
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::OK;
  };
  Client client(server.address);
  auto sink = std::make_unique<Sink>();
  auto stream = client.Fetch();
  stream->Start(sink.get());
  stream->Order(AllItems(), false);
  stream->Stop();
  stream->Stop();
  CHECK(sink->items().empty());
  sink.reset();
  stream->Order(AllItems(), false);  // harmless
  stream.reset();
}

TEST_CASE("a server that is not there breaks the stream at once") {
  std::string address;
  {
    FakeServer server;
    address = server.address;
  }
  Client client(address);
  Sink sink;
  auto stream = client.Fetch();
  stream->Start(&sink);
  stream->Order(AllItems(), false);
  CHECK(sink.AwaitBroken().code() == absl::StatusCode::kUnavailable);
  const auto found = client.client->Lookup(client.manifest.context_id, absl::Seconds(20));
  CHECK(found.status().code() == absl::StatusCode::kUnavailable);
  CHECK(found.status().message().find("server cloud: ") == 0);
}

TEST_CASE("Lookup checks what it gets, and a deadline reads as a server that is not there") {
  FakeServer server;
  Client client(server.address);
  server.lookup = [&](grpc::ServerContext*, v1::Manifest* out) {
    *out = ToProto(client.manifest, "handbook");
    return grpc::Status::OK;
  };
  std::string name;
  const auto found = client.client->Lookup(client.manifest.context_id, absl::Seconds(20), &name);
  REQUIRE_OK(found);
  CHECK(name == "handbook");
  CHECK(found->tokens == client.manifest.tokens);
  Digest other{};
  CHECK(client.client->Lookup(other, absl::Seconds(20)).status().code() ==
        absl::StatusCode::kDataLoss);
  server.lookup = [&](grpc::ServerContext*, v1::Manifest* out) {
    *out = ToProto(client.manifest);
    out->mutable_columns(0)->mutable_items()->RemoveLast();
    return grpc::Status::OK;
  };
  CHECK(client.client->Lookup(client.manifest.context_id, absl::Seconds(20)).status().code() ==
        absl::StatusCode::kDataLoss);
  server.lookup = [&](grpc::ServerContext* context, v1::Manifest*) {
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::OK;
  };
  const auto late = client.client->Lookup(client.manifest.context_id, absl::Milliseconds(50));
  CHECK(late.status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("a call ends with its caller, and every call with the client's end") {
  FakeServer server;
  Client client(server.address);
  absl::Notification asked;
  server.lookup = [&](grpc::ServerContext* context, v1::Manifest*) {
    if (!asked.HasBeenNotified()) asked.Notify();
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::OK;
  };
  const auto gone = client.client->Lookup(client.manifest.context_id, absl::Hours(1), nullptr,
                                          [&] { return asked.HasBeenNotified(); });
  CHECK(gone.status().code() == absl::StatusCode::kCancelled);
  absl::Status ended;
  std::thread caller(
      [&] { ended = client.client->Lookup(client.manifest.context_id, absl::Hours(1)).status(); });
  client.client->CancelAll();  // before or after the call began
  caller.join();
  CHECK(ended.code() == absl::StatusCode::kCancelled);
  CHECK(client.client->Info().status().code() == absl::StatusCode::kCancelled);
}

TEST_CASE("a cancelled precompute ends at the server as well") {
  FakeServer server;
  Client client(server.address);
  CancelToken cancel;
  const auto result = client.client->Precompute(
      {}, [&](const v1::PrecomputeProgress&) { cancel.Cancel(); }, cancel);
  CHECK(result.status().code() == absl::StatusCode::kCancelled);
  AwaitEnd(server);
}

TEST_CASE("the client never pings more often than the server allows") {
  CHECK(kKeepaliveInterval >= kMinPingInterval * 2);
}

}  // namespace
}  // namespace sparkv
