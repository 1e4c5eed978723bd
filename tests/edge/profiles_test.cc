// The store of profiles, over a server on loopback that sends what a test wants.
#include "edge/profiles.h"

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/rpc/wire.h"
#include "edge/net/server_client.h"
#include "tests/catch.h"
#include "tests/testing/served_profile.h"
#include "tests/testing/temp_folder.h"

namespace sparkv {
namespace {

namespace fs = std::filesystem;
using testing::ServedProfile;
using testing::ServedProfileOptions;

using Writer = grpc::ServerWriter<v1::ProfileChunk>;

class ProfileServer final : public v1::KvCache::Service {
 public:
  ProfileServer() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    client = ServerClient::Create(absl::StrCat("127.0.0.1:", port), {.enabled = false}).value();
  }
  ~ProfileServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status GetProfile(grpc::ServerContext* context, const v1::GetProfileRequest* request,
                          Writer* writer) override {
    ++calls;
    return answer(context, *request, writer);
  }

  ProfileFetcher fetcher() {
    return [this](const Digest& digest, uint64_t max_bytes,
                  const std::function<void(uint64_t, uint64_t)>& progress,
                  const CancelledFn& cancelled) {
      return client->GetProfile(digest, max_bytes, progress, cancelled);
    };
  }

  std::function<grpc::Status(grpc::ServerContext*, const v1::GetProfileRequest&, Writer*)> answer;
  std::atomic<int> calls = 0;
  std::unique_ptr<ServerClient> client;

 private:
  std::unique_ptr<grpc::Server> server_;
};

void Send(Writer* writer, const std::string& bytes, uint64_t total, size_t chunk_bytes = 10000) {
  for (size_t at = 0; at < bytes.size(); at += chunk_bytes) {
    v1::ProfileChunk chunk;
    chunk.set_total_bytes(total);
    chunk.set_data(bytes.substr(at, chunk_bytes));
    writer->Write(chunk);
  }
}

auto SendAll(const std::string& bytes) {
  return [bytes](grpc::ServerContext*, const v1::GetProfileRequest&, Writer* writer) {
    Send(writer, bytes, bytes.size());
    return grpc::Status::OK;
  };
}

Digest DigestOf(const std::string& bytes) { return Sha256().Update(AsBytes(bytes)).Finish(); }

struct Rig {
  testing::TempFolder folder;
  ProfileServer server;
  std::string bytes = ServedProfile({});
  Digest digest = DigestOf(bytes);
  ProfileStoreOptions options;

  Rig() {
    options.folder = folder.Path("profiles");
    options.first_retry = options.last_retry = absl::Milliseconds(1);
  }
  std::unique_ptr<ProfileStore> Open(bool with_server = true) {
    auto store = ProfileStore::Open(options, with_server ? server.fetcher() : nullptr);
    REQUIRE_OK(store);
    return *std::move(store);
  }
  std::string FileOf(const Digest& d) const {
    return options.folder + "/" + DigestToHex(d) + ".skvp";
  }
  size_t Files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(options.folder), {}));
  }
};

const CancelledFn kNever = [] { return false; };

TEST_CASE("A profile is fetched once, kept in a private file, and found after a restart") {
  Rig rig;
  rig.server.answer = SendAll(rig.bytes);
  {
    const auto store = rig.Open();
    CHECK(absl::IsNotFound(store->Get(rig.digest).status()));
    CHECK(store->States().empty());
    const auto profile = store->Wait(rig.digest, absl::InfiniteDuration(), kNever);
    REQUIRE_OK(profile);
    CHECK((*profile)->digest() == rig.digest);
    CHECK(store->Get(rig.digest).value() == *profile);
    store->Fetch(rig.digest);
    REQUIRE(store->States().size() == 1);
    CHECK(store->States()[0].state == "held");
    CHECK(store->States()[0].codec == "aatc-pred");
    CHECK(store->States()[0].bytes == rig.bytes.size());
    CHECK(store->States()[0].fetch_ms > 0);
  }
  struct stat st;
  REQUIRE(::stat(rig.FileOf(rig.digest).c_str(), &st) == 0);
  CHECK((st.st_mode & 0777) == 0600);
  std::ofstream(rig.FileOf(rig.digest) + ".tmp.1.2") << "cut short";
  const auto store = rig.Open(/*with_server=*/false);
  CHECK(rig.Files() == 1);
  CHECK(store->Latest("aatc-pred").value()->digest() == rig.digest);
  CHECK(absl::IsNotFound(store->Latest("aatc").status()));
  REQUIRE_OK(store->Get(rig.digest));
  CHECK(rig.server.calls == 1);
  // Without a server nothing can be awaited.
  CHECK(absl::IsNotFound(store->Wait(Digest{}, absl::InfiniteDuration(), kNever).status()));
}

TEST_CASE("A damaged or oversized file is removed and fetched again") {
  Rig rig;
  rig.server.answer = SendAll(rig.bytes);
  REQUIRE_OK(rig.Open()->Wait(rig.digest, absl::InfiniteDuration(), kNever));
  std::string damaged = rig.bytes;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 4);
  ServedProfileOptions tiny;
  tiny.seed = 2;
  rig.options.max_bytes = 1 << 20;
  for (const std::string& content :
       {damaged, std::string(), std::string((1 << 20) + 1, 'x'), ServedProfile(tiny)}) {
    std::ofstream(rig.FileOf(rig.digest), std::ios::binary) << content;
    const auto store = rig.Open();
    CHECK(absl::IsNotFound(store->Get(rig.digest).status()));
    CHECK(rig.Files() == 0);
    REQUIRE_OK(store->Wait(rig.digest, absl::InfiniteDuration(), kNever));
    CHECK(ReadFile(rig.FileOf(rig.digest), 1 << 20).value() == rig.bytes);
  }
}

TEST_CASE("What the server sends is checked: what does not fit is not kept nor asked for at once") {
  Rig rig;
  rig.options.last_retry = absl::Hours(1);
  ServedProfileOptions tiny;
  tiny.model_fingerprint[0] = 1;
  const std::string other = ServedProfile(tiny);
  struct Case {
    std::function<grpc::Status(grpc::ServerContext*, const v1::GetProfileRequest&, Writer*)> answer;
    absl::StatusCode code;
    int calls;
    Digest digest;
  };
  const auto wrong = [&](uint64_t total, size_t send, size_t chunk) {
    return [=, &rig](grpc::ServerContext*, const v1::GetProfileRequest&, Writer* writer) {
      Send(writer, rig.bytes.substr(0, send), total, chunk);
      return grpc::Status::OK;
    };
  };
  const size_t all = rig.bytes.size();
  const Case cases[] = {
      {[](auto*, const auto&, auto*) { return grpc::Status(grpc::StatusCode::NOT_FOUND, "none"); },
       absl::StatusCode::kNotFound, 1, rig.digest},
      {SendAll(other), absl::StatusCode::kFailedPrecondition, 1, DigestOf(other)},
      {wrong(uint64_t{1} << 60, 10, 10), absl::StatusCode::kFailedPrecondition, 1, rig.digest},
      {wrong(0, 10, 10), absl::StatusCode::kDataLoss, ProfileStore::kTries, rig.digest},
      {wrong(all - 1, all, 10000), absl::StatusCode::kDataLoss, ProfileStore::kTries, rig.digest},
      {wrong(all, all - 1, 10000), absl::StatusCode::kDataLoss, ProfileStore::kTries, rig.digest},
      {wrong(all, 0, 10000), absl::StatusCode::kDataLoss, ProfileStore::kTries, rig.digest},
      {[](auto*, const auto&, Writer* writer) {
         const size_t bytes = kMaxProfileChunkBytes + 1;
         Send(writer, std::string(bytes, 'x'), bytes, bytes);
         return grpc::Status::OK;
       },
       absl::StatusCode::kDataLoss, ProfileStore::kTries, rig.digest},
      {SendAll(other), absl::StatusCode::kDataLoss, ProfileStore::kTries, rig.digest},
  };
  for (const Case& one : cases) {
    rig.server.answer = one.answer;
    if (one.code == absl::StatusCode::kDataLoss) rig.options.first_retry = absl::Nanoseconds(1);
    const auto store = rig.Open();
    rig.server.calls = 0;
    for (int i = 0; i < 2; ++i) {
      const absl::Status status =
          store->Wait(one.digest, absl::InfiniteDuration(), kNever).status();
      INFO(status.ToString());
      CHECK(status.code() == one.code);
    }
    CHECK(rig.server.calls == one.calls);
    REQUIRE(store->States().size() == 1);
    CHECK(store->States()[0].state.rfind("failed: ", 0) == 0);
    CHECK(rig.Files() == 0);
  }
}

TEST_CASE("A server that is away for a while is asked again, and after giving up on request") {
  Rig rig;
  rig.server.answer = [&](grpc::ServerContext* context, const v1::GetProfileRequest& request,
                          Writer* writer) {
    if (rig.server.calls < 4) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "later");
    return SendAll(rig.bytes)(context, request, writer);
  };
  REQUIRE_OK(rig.Open()->Wait(rig.digest, absl::InfiniteDuration(), kNever));
  CHECK(rig.server.calls == 4);

  fs::remove_all(rig.options.folder);
  rig.server.answer = [](auto*, const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "none");
  };
  const auto store = rig.Open();
  CHECK(absl::IsNotFound(store->Wait(rig.digest, absl::InfiniteDuration(), kNever).status()));
  rig.server.answer = SendAll(rig.bytes);
  while (!store->Wait(rig.digest, absl::InfiniteDuration(), kNever).ok()) std::this_thread::yield();
}

TEST_CASE("Many who ask at once share one fetch, and giving up leaves it going") {
  Rig rig;
  absl::Notification go;
  rig.server.answer = [&](grpc::ServerContext* context, const v1::GetProfileRequest& request,
                          Writer* writer) {
    go.WaitForNotification();
    return SendAll(rig.bytes)(context, request, writer);
  };
  const auto store = rig.Open();
  CHECK(absl::IsUnavailable(store->Wait(rig.digest, absl::ZeroDuration(), kNever).status()));
  CHECK(absl::IsCancelled(
      store->Wait(rig.digest, absl::InfiniteDuration(), [] { return true; }).status()));
  REQUIRE(store->States().size() == 1);
  CHECK(store->States()[0].state == "fetching");
  std::vector<std::thread> threads;
  std::atomic<int> got = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      if (store->Wait(rig.digest, absl::InfiniteDuration(), kNever).ok()) ++got;
    });
  }
  go.Notify();
  for (std::thread& thread : threads) thread.join();
  CHECK(got == 8);
  CHECK(rig.server.calls == 1);
}

TEST_CASE("Stop ends a fetch in its middle and those who wait for it") {
  Rig rig;
  absl::Notification half;
  rig.server.answer = [&](grpc::ServerContext* context, const v1::GetProfileRequest&,
                          Writer* writer) {
    Send(writer, rig.bytes.substr(0, 1000), rig.bytes.size());
    if (!half.HasBeenNotified()) half.Notify();
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::CANCELLED;
  };
  const auto store = rig.Open();
  absl::Status waited;
  std::thread waiter(
      [&] { waited = store->Wait(rig.digest, absl::InfiniteDuration(), kNever).status(); });
  half.WaitForNotification();
  store->Stop();
  waiter.join();
  CHECK(absl::IsCancelled(waited));
  store->Stop();
  store->Fetch(rig.digest);
  CHECK(rig.server.calls == 1);
  CHECK(rig.Files() == 0);
}

TEST_CASE("The least recently used profile goes when there are too many") {
  Rig rig;
  rig.options.max_files = 2;
  std::vector<std::string> bytes;
  std::vector<Digest> digests;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    ServedProfileOptions tiny;
    tiny.seed = seed;
    bytes.push_back(ServedProfile(tiny));
    digests.push_back(DigestOf(bytes.back()));
  }
  rig.server.answer = [&](grpc::ServerContext*, const v1::GetProfileRequest& request,
                          Writer* writer) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (request.digest() == AsStringView(digests[i])) Send(writer, bytes[i], bytes[i].size());
    }
    return grpc::Status::OK;
  };
  const auto store = rig.Open();
  REQUIRE_OK(store->Wait(digests[0], absl::InfiniteDuration(), kNever));
  REQUIRE_OK(store->Wait(digests[1], absl::InfiniteDuration(), kNever));
  REQUIRE_OK(store->Get(digests[0]));
  REQUIRE_OK(store->Wait(digests[2], absl::InfiniteDuration(), kNever));
  CHECK(rig.Files() == 2);
  CHECK(absl::IsNotFound(store->Get(digests[1]).status()));
  REQUIRE_OK(store->Get(digests[0]));
  CHECK(store->Latest("aatc-pred").value()->digest() == digests[0]);
}

}  // namespace
}  // namespace sparkv
