// The service over real gRPC on a loopback port, with the fake model.
#include "server/kv_service.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <fstream>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/base/bytes.h"
#include "common/rpc/status_conv.h"
#include "common/rpc/wire.h"
#include "server/kv_server.h"
#include "tests/catch.h"
#include "tests/common/rpc/test_certificate.h"
#include "tests/server/fake_prefiller.h"

namespace sparkv {
namespace {

using testing::ExpectedKv;
using testing::FakePrefiller;
using testing::TempFolder;
using testing::TestTokens;

std::string Bytes(const Digest& d) {
  return std::string(reinterpret_cast<const char*>(d.data()), d.size());
}

struct Rig {
  TempFolder folder;
  FakePrefiller* fake = nullptr;
  std::unique_ptr<KvServer> server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::KvCache::Stub> stub;

  explicit Rig(KvServerOptions options = {}, const ClientTls& tls = {},
               const KvGeometry& geometry = testing::kTestGeometry) {
    if (options.store.path.empty()) options.store.path = folder.path() + "/store";
    options.service.version = "test";
    auto prefiller = std::make_unique<FakePrefiller>(geometry);
    fake = prefiller.get();
    auto started = KvServer::Start(std::move(prefiller), options);
    REQUIRE_OK(started);
    server = *std::move(started);
    channel = MakeChannel(absl::StrCat("127.0.0.1:", server->port()), tls).value();
    stub = v1::KvCache::NewStub(channel);
  }

  absl::StatusOr<v1::ContextInfo> Precompute(const v1::PrecomputeRequest& request) {
    grpc::ClientContext context;
    auto reader = stub->Precompute(&context, request);
    v1::PrecomputeProgress message;
    v1::ContextInfo info;
    uint32_t before = 0;
    while (reader->Read(&message)) {
      CHECK(message.tokens_done() >= before);
      before = message.tokens_done();
      if (message.has_done()) info = message.done();
    }
    const grpc::Status status = reader->Finish();
    if (!status.ok()) return FromGrpc(status);
    CHECK(message.has_done());
    return info;
  }
  absl::StatusOr<v1::ContextInfo> Precompute(const std::vector<int32_t>& tokens,
                                             const std::string& codec) {
    v1::PrecomputeRequest request;
    request.mutable_tokens()->Add(tokens.begin(), tokens.end());
    request.set_codec(codec);
    return Precompute(request);
  }
  absl::StatusOr<Manifest> Lookup(const std::string& id) {
    grpc::ClientContext context;
    v1::LookupRequest request;
    request.set_context_id(id);
    v1::Manifest manifest;
    const grpc::Status status = stub->Lookup(&context, request, &manifest);
    if (!status.ok()) return FromGrpc(status);
    return FromProto(manifest);
  }
};

v1::FetchRequest Open(const Manifest& m, uint64_t window = 0) {
  v1::FetchRequest request;
  request.mutable_open()->set_context_id(Bytes(m.context_id));
  request.mutable_open()->set_model_fingerprint(Bytes(m.model_fingerprint));
  request.mutable_open()->set_codec_digest(Bytes(m.codec_digest));
  request.mutable_open()->set_window_bytes(window);
  return request;
}

void AddItem(uint32_t t, uint32_t l, uint32_t p,
             google::protobuf::RepeatedPtrField<v1::ItemRef>* items) {
  v1::ItemRef* item = items->Add();
  item->set_column(t);
  item->set_layer(l);
  item->set_plane(p);
}

v1::FetchRequest OrderAll(const Manifest& m) {
  v1::FetchRequest request;
  for (uint32_t t = 0; t < m.columns.size(); ++t) {
    for (uint32_t l = 0; l < m.geometry.layers; ++l) {
      for (uint32_t p = 0; p < m.planes; ++p)
        AddItem(t, l, p, request.mutable_order()->mutable_items());
    }
  }
  return request;
}

// Fetches every item, acknowledging each frame, and compares the decoded blocks with one prefill.
void FetchAndCheck(Rig* rig, const Manifest& m, const std::vector<int32_t>& tokens,
                   uint64_t window) {
  grpc::ClientContext context;
  auto stream = rig->stub->Fetch(&context);
  REQUIRE(stream->Write(Open(m, window)));
  REQUIRE(stream->Write(OrderAll(m)));
  v1::FetchResponse response;
  REQUIRE(stream->Read(&response));
  REQUIRE(response.has_opened());
  CHECK(response.opened().columns() == m.columns.size());
  std::vector<std::string> items;
  const size_t total = m.columns.size() * m.geometry.layers * m.planes;
  std::string current;
  while (items.size() < total && stream->Read(&response)) {
    REQUIRE(response.has_frame());
    const auto& frame = response.frame();
    CHECK(frame.data().size() <= kMaxFrameBytes);
    if (window != 0) CHECK(frame.data().size() <= window);
    const size_t index =
        (frame.item().column() * m.geometry.layers + frame.item().layer()) * m.planes +
        frame.item().plane();
    REQUIRE(index == items.size());
    REQUIRE(frame.offset() == current.size());
    current += frame.data();
    v1::FetchRequest grant;
    grant.mutable_window()->set_consumed_bytes(frame.data().size());
    REQUIRE(stream->Write(grant));
    if (frame.last()) items.push_back(std::move(current));
    if (frame.last()) current.clear();
  }
  stream->WritesDone();
  CHECK_FALSE(stream->Read(&response));
  const grpc::Status status = stream->Finish();
  INFO(status.error_message());
  CHECK(status.ok());
  REQUIRE(items.size() == total);

  const KvCache expected = ExpectedKv(tokens);
  const BlockDecoder* decoder = FindDecoder(m.codec).value();
  for (uint32_t t = 0; t < m.columns.size(); ++t) {
    const BlockShape shape{m.geometry.kv_heads, m.columns[t].tokens, m.geometry.head_dim};
    std::vector<uint16_t> k(shape.elements()), v(shape.elements()), want_k(shape.elements()),
        want_v(shape.elements());
    for (uint32_t l = 0; l < m.geometry.layers; ++l) {
      std::vector<std::span<const uint8_t>> views;
      for (uint32_t p = 0; p < m.planes; ++p) {
        const std::string& item = items[(t * m.geometry.layers + l) * m.planes + p];
        CHECK(item.size() == m.item(t, l, p).bytes);
        views.push_back(AsBytes(item));
      }
      REQUIRE_OK(decoder->DecodeBlock(shape, views, k.data(), v.data()));
      REQUIRE_OK(
          expected.ExportBlock(l, t * kColumnTokens, shape.tokens, want_k.data(), want_v.data()));
      if (decoder->info().lossless) {
        CHECK(k == want_k);
        CHECK(v == want_v);
      }
    }
  }
}

TEST_CASE(
    "Precompute, Lookup, Fetch of all items, decode: equal to the prefill, with and without TLS") {
  TempFolder certificates;
  const auto files = testing::MakeTestCertificate(certificates.path(), "server");
  for (const bool tls : {false, true}) {
    KvServerOptions options;
    ClientTls client;
    if (tls) {
      options.tls = {files.certificate, files.key};
      client = {.enabled = true, .ca_file = files.certificate};
    }
    Rig rig(options, client);
    for (const std::string codec : {"f16", "generic"}) {
      const std::vector<int32_t> tokens = TestTokens(5, 2100);
      const auto info = rig.Precompute(tokens, codec);
      REQUIRE_OK(info);
      CHECK(info->tokens() == 2100);
      CHECK(info->codec() == codec);
      const auto manifest = rig.Lookup(info->context_id());
      REQUIRE_OK(manifest);
      CHECK(manifest->tokens == tokens);
      CHECK(manifest->model_fingerprint == testing::TestFingerprint());
      for (const uint64_t window : {uint64_t{0}, uint64_t{1000}})
        FetchAndCheck(&rig, *manifest, tokens, window);
    }
  }
}

TEST_CASE("GetServerInfo, List, Show and Delete tell the same story") {
  Rig rig;
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) {
    const auto info = rig.Precompute(TestTokens(100 * i, 50), "f16");
    REQUIRE_OK(info);
    ids.push_back(info->context_id());
  }
  {
    grpc::ClientContext context;
    v1::ServerInfo info;
    REQUIRE(rig.stub->GetServerInfo(&context, {}, &info).ok());
    CHECK(info.version() == "test");
    CHECK(info.model_name() == "fake");
    CHECK(info.model_fingerprint() == Bytes(testing::TestFingerprint()));
    CHECK(info.codecs(0) == "generic");
    CHECK(info.codecs_size() >= 2);
    CHECK(FromProto(info.geometry()).value() == testing::kTestGeometry);
    CHECK(info.store_bytes() > 0);
  }
  std::string seen;
  v1::ListRequest list;
  list.set_limit(2);
  do {
    grpc::ClientContext context;
    v1::ListResponse page;
    REQUIRE(rig.stub->List(&context, list, &page).ok());
    for (const auto& c : page.contexts()) seen += c.context_id();
    list.set_page_token(page.next_page_token());
  } while (!list.page_token().empty());
  CHECK(seen == ids[2] + ids[1] + ids[0]);
  const auto show = [&](const std::string& id, v1::ContextInfo* info) {
    grpc::ClientContext context;
    v1::ShowRequest request;
    request.set_context_id(id);
    return rig.stub->Show(&context, request, info).error_code();
  };
  v1::ContextInfo info;
  CHECK(show(ids[0], &info) == grpc::StatusCode::OK);
  CHECK(info.tokens() == 50);
  CHECK(show("short", &info) == grpc::StatusCode::INVALID_ARGUMENT);
  const auto remove = [&](const std::string& id, v1::DeleteResponse* response) {
    grpc::ClientContext context;
    v1::DeleteRequest request;
    request.set_context_id(id);
    return rig.stub->Delete(&context, request, response).error_code();
  };
  v1::DeleteResponse removed;
  CHECK(remove(ids[0], &removed) == grpc::StatusCode::OK);
  CHECK(removed.freed_bytes() == info.stored_bytes());
  CHECK(remove(ids[0], &removed) == grpc::StatusCode::NOT_FOUND);
  CHECK(show(ids[0], &info) == grpc::StatusCode::NOT_FOUND);
  CHECK(absl::IsNotFound(rig.Lookup(ids[0]).status()));
  list.set_limit(1001);
  grpc::ClientContext context;
  v1::ListResponse page;
  CHECK(rig.stub->List(&context, list, &page).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_CASE("Precompute from text, and its errors by the table of codes") {
  Rig rig;
  v1::PrecomputeRequest text;
  text.set_text("hello");
  text.set_name("greeting");
  const auto info = rig.Precompute(text);
  REQUIRE_OK(info);
  CHECK(info->tokens() == 6);
  CHECK(info->name() == "greeting");
  CHECK(info->codec() == "generic");
  text.set_raw(true);
  CHECK(rig.Precompute(text)->tokens() == 5);
  const auto code = [&](const std::function<void(v1::PrecomputeRequest*)>& change) {
    v1::PrecomputeRequest request;
    request.set_text("hello");
    change(&request);
    return rig.Precompute(request).status().code();
  };
  using absl::StatusCode;
  CHECK(code([](auto* r) { r->clear_text(); }) == StatusCode::kInvalidArgument);
  CHECK(code([](auto* r) { r->add_tokens(1); }) == StatusCode::kInvalidArgument);
  CHECK(code([](auto* r) { r->set_name(std::string(257, 'x')); }) == StatusCode::kInvalidArgument);
  CHECK(code([](auto* r) { r->set_name("line\nbreak"); }) == StatusCode::kInvalidArgument);
  CHECK(code([](auto* r) { r->set_name("\x1b[31mred"); }) == StatusCode::kInvalidArgument);
  CHECK(code([](auto* r) { r->set_name("c1 \u009b"); }) == StatusCode::kInvalidArgument);
  CHECK(code([](auto* r) { r->set_name("bidi \u202e"); }) == StatusCode::kInvalidArgument);
  CHECK(code([](auto* r) { r->set_name("\u6b6a \u00e9"); }) == StatusCode::kOk);
  CHECK(code([](auto* r) { r->set_model_fingerprint("x"); }) == StatusCode::kInvalidArgument);
  CHECK(code([](auto* r) { r->set_model_fingerprint(std::string(32, 'x')); }) ==
        StatusCode::kFailedPrecondition);
  CHECK(code([](auto* r) { r->set_codec("zip"); }) == StatusCode::kFailedPrecondition);
  CHECK(code([](auto* r) { r->set_text(std::string(9000, 'x')); }) == StatusCode::kInvalidArgument);
  CHECK(code([](auto* r) { r->set_system(std::string(2 << 20, 'x')); }) ==
        StatusCode::kInvalidArgument);
  // R3: just above the limit of a text, far above gRPC's default of 4 MiB: our message, not the
  // transport's.
  CHECK(code([](auto* r) { r->set_text(std::string(kMaxRequestTextBytes + 1, 'x')); }) ==
        StatusCode::kInvalidArgument);
}

// What a stream of requests ends with.
absl::Status FetchEnd(Rig* rig, const std::vector<v1::FetchRequest>& requests) {
  grpc::ClientContext context;
  auto stream = rig->stub->Fetch(&context);
  for (const auto& request : requests) stream->Write(request);
  stream->WritesDone();
  v1::FetchResponse response;
  while (stream->Read(&response)) {
  }
  return FromGrpc(stream->Finish());
}

TEST_CASE("Fetch refuses what the contract forbids, with its code") {
  Rig rig;
  const auto info = rig.Precompute(TestTokens(5, 50), "f16");
  REQUIRE_OK(info);
  const Manifest m = *rig.Lookup(info->context_id());
  using absl::StatusCode;
  v1::FetchRequest outside;
  AddItem(1, 0, 0, outside.mutable_order()->mutable_items());
  CHECK(FetchEnd(&rig, {}).code() == StatusCode::kInvalidArgument);
  CHECK(FetchEnd(&rig, {OrderAll(m)}).code() == StatusCode::kInvalidArgument);
  CHECK(FetchEnd(&rig, {Open(m), outside}).code() == StatusCode::kInvalidArgument);
  CHECK(FetchEnd(&rig, {Open(m), Open(m)}).code() == StatusCode::kInvalidArgument);
  CHECK(FetchEnd(&rig, {Open(m), v1::FetchRequest()}).code() == StatusCode::kInvalidArgument);
  CHECK(FetchEnd(&rig, {Open(m, kMaxWindowBytes + 1)}).code() == StatusCode::kInvalidArgument);
  Manifest other = m;
  other.context_id[0] ^= 1;
  CHECK(FetchEnd(&rig, {Open(other)}).code() == StatusCode::kNotFound);
  other = m;
  other.model_fingerprint[0] ^= 1;
  CHECK(FetchEnd(&rig, {Open(other)}).code() == StatusCode::kFailedPrecondition);
  other = m;
  other.codec_digest[0] ^= 1;
  CHECK(FetchEnd(&rig, {Open(other)}).code() == StatusCode::kFailedPrecondition);
  v1::FetchRequest bad = Open(m);
  bad.mutable_open()->set_context_id("x");
  CHECK(FetchEnd(&rig, {bad}).code() == StatusCode::kInvalidArgument);
  CHECK(FetchEnd(&rig, {Open(m), OrderAll(m)}).ok());
  CHECK(FetchEnd(&rig, {Open(m)}).ok());
}

TEST_CASE("A corrupt item fails alone with DATA_LOSS, the stream goes on") {
  Rig rig;
  const auto info = rig.Precompute(TestTokens(5, 50), "f16");
  REQUIRE_OK(info);
  const Manifest m = *rig.Lookup(info->context_id());
  {
    std::fstream file(testing::FileOf(rig.folder.path() + "/store", m.context_id),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const char last = static_cast<char>(file.get());
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(last ^ 1));
  }
  grpc::ClientContext context;
  auto stream = rig.stub->Fetch(&context);
  stream->Write(Open(m));
  v1::FetchRequest order;
  AddItem(0, 0, 0, order.mutable_order()->mutable_items());
  AddItem(0, 1, 0, order.mutable_order()->mutable_items());
  stream->Write(order);
  stream->WritesDone();
  v1::FetchResponse response;
  REQUIRE(stream->Read(&response));
  CHECK(response.has_opened());
  REQUIRE(stream->Read(&response));
  CHECK(response.has_frame());
  REQUIRE(stream->Read(&response));
  REQUIRE(response.has_failed());
  CHECK(response.failed().item().layer() == 1);
  CHECK(response.failed().code() == grpc::StatusCode::DATA_LOSS);
  CHECK_FALSE(stream->Read(&response));
  CHECK(stream->Finish().ok());
  // It heals with the next precompute.
  CHECK(absl::IsNotFound(rig.Lookup(info->context_id()).status()));
  REQUIRE_OK(rig.Precompute(TestTokens(5, 50), "f16"));
  CHECK(FetchEnd(&rig, {Open(m), OrderAll(m)}).ok());
}

TEST_CASE(
    "While a context is being fetched it can't be deleted, and when the client cancels, it can") {
  Rig rig;
  const auto info = rig.Precompute(TestTokens(5, 50), "f16");
  REQUIRE_OK(info);
  const Manifest m = *rig.Lookup(info->context_id());
  v1::DeleteRequest request;
  request.set_context_id(info->context_id());
  v1::DeleteResponse response;
  grpc::ClientContext context;
  auto stream = rig.stub->Fetch(&context);
  stream->Write(Open(m));
  v1::FetchResponse opened;
  REQUIRE(stream->Read(&opened));
  {
    grpc::ClientContext c;
    CHECK(rig.stub->Delete(&c, request, &response).error_code() ==
          grpc::StatusCode::FAILED_PRECONDITION);
  }
  CHECK(rig.server->service().fetch_streams() == 1);
  const absl::Time cancelled = absl::Now();
  context.TryCancel();
  CHECK(stream->Finish().error_code() == grpc::StatusCode::CANCELLED);
  while (rig.server->service().fetch_streams() != 0) std::this_thread::yield();
  WARN("stopped " << absl::FormatDuration(absl::Now() - cancelled) << " after the cancel");
  grpc::ClientContext c;
  CHECK(rig.stub->Delete(&c, request, &response).ok());
}

TEST_CASE("A client that reads nothing is cut off after the stall limit and loses its pin") {
  KvServerOptions options;
  options.service.fetch_stall_limit = absl::Milliseconds(1);
  Rig rig(options);
  const auto info = rig.Precompute(TestTokens(5, 50), "f16");
  REQUIRE_OK(info);
  const Manifest m = *rig.Lookup(info->context_id());
  grpc::ClientContext context;
  auto stream = rig.stub->Fetch(&context);
  stream->Write(Open(m, 1));  // a window of one byte, never granted again
  stream->Write(OrderAll(m));
  v1::FetchResponse response;
  while (stream->Read(&response)) {
  }
  CHECK(stream->Finish().error_code() == grpc::StatusCode::UNAVAILABLE);
  while (rig.server->service().fetch_streams() != 0) std::this_thread::yield();
}

TEST_CASE("One stream too many is refused with RESOURCE_EXHAUSTED") {
  KvServerOptions options;
  options.service.max_fetch_streams = 1;
  Rig rig(options);
  const auto info = rig.Precompute(TestTokens(5, 50), "f16");
  REQUIRE_OK(info);
  const Manifest m = *rig.Lookup(info->context_id());
  grpc::ClientContext context;
  auto stream = rig.stub->Fetch(&context);
  stream->Write(Open(m));
  v1::FetchResponse response;
  REQUIRE(stream->Read(&response));
  CHECK(FetchEnd(&rig, {Open(m)}).code() == absl::StatusCode::kResourceExhausted);
  stream->WritesDone();
  CHECK_FALSE(stream->Read(&response));
  CHECK(stream->Finish().ok());
  while (rig.server->service().fetch_streams() != 0) std::this_thread::yield();
  CHECK(FetchEnd(&rig, {Open(m)}).ok());
}

TEST_CASE(
    "A precompute whose client cancels stops, and a shutdown ends idle streams with UNAVAILABLE") {
  Rig rig;
  const auto info = rig.Precompute(TestTokens(5, 50), "f16");
  REQUIRE_OK(info);
  const Manifest m = *rig.Lookup(info->context_id());
  absl::Notification started;
  rig.fake->on_prefill = [&](uint32_t) { started.Notify(); };
  rig.fake->until_cancelled = true;
  {
    grpc::ClientContext context;
    v1::PrecomputeRequest request;
    const auto tokens = TestTokens(9, 3000);
    request.mutable_tokens()->Add(tokens.begin(), tokens.end());
    auto reader = rig.stub->Precompute(&context, request);
    started.WaitForNotification();
    context.TryCancel();
    v1::PrecomputeProgress progress;
    while (reader->Read(&progress)) {
    }
    CHECK(reader->Finish().error_code() == grpc::StatusCode::CANCELLED);
  }
  // The model works until it is told to stop: this ends only if the cancellation reaches it.
  while (rig.server->precomputer().pending() != 0) std::this_thread::yield();

  grpc::ClientContext context;
  auto stream = rig.stub->Fetch(&context);
  stream->Write(Open(m));
  v1::FetchResponse response;
  REQUIRE(stream->Read(&response));
  std::thread stop([&] { rig.server->Shutdown(absl::Seconds(20)); });
  CHECK_FALSE(stream->Read(&response));
  CHECK(stream->Finish().error_code() == grpc::StatusCode::UNAVAILABLE);
  stop.join();
  CHECK(rig.server->service().fetch_streams() == 0);
}

TEST_CASE("A connection without a call does not hold up a shutdown") {
  Rig rig;
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(rig.server->port()));
  REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  rig.server->Shutdown(absl::Hours(1));  // its grace is for what is being sent
  ::close(fd);
}

TEST_CASE("Health says SERVING") {
  Rig rig;
  // grpc.health.v1.HealthCheckResponse {status: SERVING} is 08 01; the request is empty.
  grpc::ClientContext context;
  const grpc::Slice nothing;
  grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  absl::Notification called;
  grpc::GenericStub stub(rig.channel);
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request, &response,
                 [&](grpc::Status s) {
                   status = std::move(s);
                   called.Notify();
                 });
  called.WaitForNotification();
  INFO(status.error_message());
  REQUIRE(status.ok());
  grpc::Slice slice;
  REQUIRE(response.DumpToSingleSlice(&slice).ok());
  CHECK(std::string(reinterpret_cast<const char*>(slice.begin()), slice.size()) ==
        std::string("\x08\x01", 2));
}

TEST_CASE("An address that can't be listened on is an error with a sentence") {
  TempFolder folder;
  KvServerOptions options;
  options.listen = "256.1.1.1:0";
  options.store.path = folder.path();
  const auto server = KvServer::Start(std::make_unique<FakePrefiller>(), options);
  CHECK(absl::IsUnavailable(server.status()));
  // The folder is free again.
  CHECK(DiskStore::Open({.path = folder.path()}).ok());
}

TEST_CASE("Many clients fetch, precompute and delete at once") {
  KvServerOptions options;
  options.store.budget_bytes = 200000;
  Rig rig(options);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  std::atomic<int> fetched = 0;
  for (int w = 0; w < 6; ++w) {
    threads.emplace_back([&, w] {
      const auto channel = MakeChannel(absl::StrCat("127.0.0.1:", rig.server->port()), {}).value();
      const auto stub = v1::KvCache::NewStub(channel);
      for (int i = 0; i < 8; ++i) {
        const std::vector<int32_t> tokens = TestTokens(100 * ((w + i) % 4), 1100);
        v1::PrecomputeRequest request;
        request.mutable_tokens()->Add(tokens.begin(), tokens.end());
        request.set_codec("f16");
        v1::ContextInfo info;
        {
          grpc::ClientContext context;
          auto reader = stub->Precompute(&context, request);
          v1::PrecomputeProgress progress;
          while (reader->Read(&progress)) {
            if (progress.has_done()) info = progress.done();
          }
          if (!reader->Finish().ok()) {
            ++wrong;
            continue;
          }
        }
        v1::Manifest proto;
        {
          grpc::ClientContext context;
          v1::LookupRequest lookup;
          lookup.set_context_id(info.context_id());
          const grpc::Status status = stub->Lookup(&context, lookup, &proto);
          if (status.error_code() == grpc::StatusCode::NOT_FOUND)
            continue;  // deleted by another client
          if (!status.ok()) ++wrong;
        }
        const auto manifest = FromProto(proto);
        if (!manifest.ok()) {
          ++wrong;
          continue;
        }
        grpc::ClientContext context;
        auto stream = stub->Fetch(&context);
        stream->Write(Open(*manifest));
        stream->Write(OrderAll(*manifest));
        if (i % 3 == 1) {
          v1::FetchRequest cancel;
          AddItem(1, 0, 0, cancel.mutable_cancel()->mutable_items());
          stream->Write(cancel);
        }
        stream->WritesDone();
        v1::FetchResponse response;
        int items = 0;
        bool cut = false;
        while (stream->Read(&response)) {
          if (response.has_failed()) ++wrong;
          if ((response.has_frame() && response.frame().last()) || response.has_cancelled())
            ++items;
          if (i % 4 == 3 && items == 1) {
            context.TryCancel();
            cut = true;
          }
        }
        const grpc::Status status = stream->Finish();
        if (!status.ok() && !cut && status.error_code() != grpc::StatusCode::NOT_FOUND) ++wrong;
        if (status.ok()) {
          if (items != 4) ++wrong;
          ++fetched;
        }
        if (i % 5 == 4) {
          grpc::ClientContext c;
          v1::DeleteRequest remove;
          remove.set_context_id(info.context_id());
          v1::DeleteResponse removed;
          stub->Delete(&c, remove, &removed);
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(fetched > 0);
  while (rig.server->service().fetch_streams() != 0) std::this_thread::yield();
}

TEST_CASE("A server with a profile says so, makes it the default and hands it out whole") {
  TempFolder folder;
  testing::ServedProfileOptions tiny = testing::FakeProfile();
  tiny.geometry = {40, 2, 64, KvDtype::kF16};  // more than one chunk
  const std::string bytes = testing::ServedProfile(tiny);
  REQUIRE(bytes.size() > 2 * kMaxProfileChunkBytes);
  KvServerOptions options;
  options.profiles = {testing::FileWith(folder, "p.skvp", bytes)};
  options.store.path = folder.path() + "/store";
  std::string id, digest;
  {
    Rig rig(options, {}, tiny.geometry);
    grpc::ClientContext info_context;
    v1::ServerInfo info;
    REQUIRE(rig.stub->GetServerInfo(&info_context, {}, &info).ok());
    CHECK(info.codecs(0) == "aatc-pred");
    REQUIRE(info.profiles_size() == 1);
    CHECK(info.profiles(0).codec() == "aatc-pred");
    CHECK(info.profiles(0).bytes() == bytes.size());
    digest = info.profiles(0).digest();

    const auto get = [&](const std::string& name, std::string* out) {
      grpc::ClientContext context;
      v1::GetProfileRequest request;
      request.set_digest(name);
      auto reader = rig.stub->GetProfile(&context, request);
      v1::ProfileChunk chunk;
      while (reader->Read(&chunk)) {
        CHECK(chunk.total_bytes() == bytes.size());
        CHECK(chunk.data().size() <= kMaxProfileChunkBytes);
        *out += chunk.data();
      }
      return FromGrpc(reader->Finish()).code();
    };
    std::string got, none;
    CHECK(get(digest, &got) == absl::StatusCode::kOk);
    CHECK(got == bytes);
    CHECK(Bytes(Sha256().Update(AsBytes(got)).Finish()) == digest);
    CHECK(get(std::string(32, 'x'), &none) == absl::StatusCode::kNotFound);
    CHECK(get("x", &none) == absl::StatusCode::kInvalidArgument);
    CHECK(none.empty());
    CHECK(rig.server->service().calls() == 0);

    const auto stored = rig.Precompute(TestTokens(5, 50), "");
    REQUIRE_OK(stored);
    CHECK(stored->codec() == "aatc-pred");
    id = stored->context_id();
    const auto manifest = rig.Lookup(id);
    REQUIRE_OK(manifest);
    REQUIRE(manifest->profile_digest.has_value());
    CHECK(Bytes(*manifest->profile_digest) == digest);
    CHECK_FALSE(rig.Lookup(rig.Precompute(TestTokens(5, 50), "f16")->context_id())->profile_digest);
  }
  // The same store without the profile: who has it can still fetch, nobody can make more.
  options.profiles.clear();
  Rig rig(options, {}, tiny.geometry);
  const auto manifest = rig.Lookup(id);
  REQUIRE_OK(manifest);
  CHECK(Bytes(*manifest->profile_digest) == digest);
  CHECK(FetchEnd(&rig, {Open(*manifest), OrderAll(*manifest)}).ok());
  CHECK(absl::IsFailedPrecondition(rig.Precompute(TestTokens(5, 50), "aatc-pred").status()));
  grpc::ClientContext context;
  v1::GetProfileRequest request;
  request.set_digest(digest);
  auto reader = rig.stub->GetProfile(&context, request);
  v1::ProfileChunk chunk;
  CHECK_FALSE(reader->Read(&chunk));
  CHECK(reader->Finish().error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("A profile of another model stops the server before it listens") {
  TempFolder folder;
  testing::ServedProfileOptions tiny = testing::FakeProfile();
  tiny.model_fingerprint[31] ^= 1;
  KvServerOptions options;
  options.profiles = {testing::FileWith(folder, "p.skvp", testing::ServedProfile(tiny))};
  options.store.path = folder.path() + "/store";
  CHECK(absl::IsFailedPrecondition(
      KvServer::Start(std::make_unique<FakePrefiller>(testing::kWideGeometry), options).status()));
}

TEST_CASE("Profile transfers have a limit, and one that stalls is ended") {
  TempFolder folder;
  testing::ServedProfileOptions tiny = testing::FakeProfile();
  tiny.geometry = {200, 4, 64, KvDtype::kF16};  // beyond what a connection buffers
  KvServerOptions options;
  options.profiles = {testing::FileWith(folder, "p.skvp", testing::ServedProfile(tiny))};
  options.service.max_profile_calls = 1;
  options.service.fetch_stall_limit = absl::Milliseconds(10);
  Rig rig(options, {}, tiny.geometry);
  v1::GetProfileRequest request;
  request.set_digest(Bytes(rig.server->codecs().WithProfile()[0]->profile->digest()));
  v1::ProfileChunk chunk;
  grpc::ClientContext slow_context;
  auto slow = rig.stub->GetProfile(&slow_context, request);
  REQUIRE(slow->Read(&chunk));
  {
    grpc::ClientContext context;
    auto refused = rig.stub->GetProfile(&context, request);
    CHECK_FALSE(refused->Read(&chunk));
    CHECK(refused->Finish().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  while (rig.server->service().calls() > 0) std::this_thread::yield();  // the server has given up
  while (slow->Read(&chunk)) {
  }
  CHECK_FALSE(slow->Finish().ok());
}

}  // namespace
}  // namespace sparkv
