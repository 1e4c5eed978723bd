// A real server process and the edge daemon over loopback: every fault of the link or the server
// ends in the right answer with the reason beside it.
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/llm/model.h"
#include "tests/common/rpc/test_certificate.h"
#include "tests/integration/flipping_relay.h"
#include "tests/integration/server_process.h"
#include "tests/testing/served_profile.h"

namespace sparkv {
namespace {

using testing::Answer;
using testing::Document;
using testing::EdgeWithServer;
using testing::LocalConfig;
using testing::Prose;
using testing::Question;
using testing::ServerProcess;
using testing::TempFolder;
using testing::TestDaemon;
using testing::TestModel;

constexpr char kQuestion[] = "Which thing was repaired by the keeper?";

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

v1::AddContextRequest Lossless(const std::string& name, const std::string& text) {
  v1::AddContextRequest request = Document(name, text);
  request.set_codec("f16");
  return request;
}

// What a daemon without a server answers.
std::vector<int32_t> Truth(const std::string& text) {
  TempFolder folder;
  TestDaemon edge(LocalConfig(folder));
  REQUIRE_OK(edge.Add(Document("doc", text)));
  const Answer answer = edge.Ask(Question("doc", kQuestion));
  REQUIRE_OK(answer.status);
  return answer.ids;
}

v1::GenerateRequest Ask(v1::Policy policy, bool drop = false) {
  v1::GenerateRequest request = Question("doc", kQuestion);
  request.set_policy(policy);
  request.set_drop_loaded(drop);
  return request;
}

TEST_CASE(
    "all policies give the same answer with the lossless codec, and a second question fetches "
    "nothing") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  const std::string text = Prose(60);  // two columns, the last one short
  ServerProcess server(TestModel(), folder.path() + "/server");
  EdgeConfig config = EdgeWithServer(folder, server.address());
  config.shaped = true;
  config.link.rate = *RateTrace::Constant(200);
  config.session.link.bytes_per_s = 25e6;
  TestDaemon edge(config);
  const auto added = edge.Add(Lossless("doc", text));
  REQUIRE_OK(added);
  REQUIRE(added->degraded_size() == 0);
  CHECK(added->done().on_server());
  CHECK(added->done().stored_bytes() > 0);
  REQUIRE(added->done().tokens() > 1024);
  const uint32_t blocks = 2 * 30;

  const Answer stream = edge.Ask(Ask(v1::POLICY_STREAM, true));
  REQUIRE_OK(stream.status);
  CHECK(stream.degraded().empty());
  CHECK(stream.result.usage().policy() == "stream");
  CHECK(stream.result.usage().level() == 16);
  CHECK(stream.result.usage().blocks_streamed() + stream.result.usage().blocks_computed() ==
        blocks);
  CHECK(stream.result.usage().blocks_streamed() > blocks / 2);
  CHECK(stream.result.usage().bytes_fetched() > 1000000);
  for (const v1::Policy policy : {v1::POLICY_LOCAL, v1::POLICY_CAKE, v1::POLICY_SPARKV}) {
    const Answer answer = edge.Ask(Ask(policy, true));
    REQUIRE_OK(answer.status);
    INFO("policy " << answer.result.usage().policy());
    CHECK(answer.degraded().empty());
    CHECK(answer.ids == stream.ids);
    CHECK(answer.result.usage().blocks_streamed() + answer.result.usage().blocks_computed() ==
          blocks);
    CHECK((answer.result.usage().bytes_fetched() > 0) == (policy != v1::POLICY_LOCAL));
  }
  const Answer again = edge.Ask(Ask(v1::POLICY_STREAM));
  REQUIRE_OK(again.status);
  CHECK(again.ids == stream.ids);
  CHECK(again.result.usage().bytes_fetched() == 0);
  CHECK(again.result.usage().blocks_streamed() == 0);
  CHECK(again.result.usage().blocks_computed() == 0);
  CHECK(again.result.usage().blocks_resident() == blocks);
  CHECK(again.result.ttft().stream_ms() == 0);
  CHECK(again.result.ttft().compute_ms() == 0);
}

TEST_CASE("what is loaded serves a request unless it is worse than asked for") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  ServerProcess server(TestModel(), folder.path() + "/server");
  TestDaemon edge(EdgeWithServer(folder, server.address()));
  const auto added = edge.Add(Document("doc", Prose(12)));
  REQUIRE_OK(added);
  const auto& level_bytes = added->done().level_bytes();  // of levels 4, 5, 8
  REQUIRE(level_bytes.size() == 3);
  v1::GenerateRequest request = Ask(v1::POLICY_STREAM);
  const Answer standard = edge.Ask(request);
  REQUIRE_OK(standard.status);
  CHECK(standard.result.usage().level() == 5);
  request.set_level(4);  // what is there is better
  CHECK(edge.Ask(request).result.usage().bytes_fetched() == 0);
  request.set_level(8);
  const Answer better = edge.Ask(request);
  REQUIRE_OK(better.status);
  CHECK(better.result.usage().level() == 8);
  // The planes of level 5 are still here.
  CHECK(standard.result.usage().bytes_fetched() == level_bytes[1]);
  CHECK(better.result.usage().bytes_fetched() == level_bytes[2] - level_bytes[1]);
  request.set_level(7);
  CHECK(edge.Ask(request).status.code() == absl::StatusCode::kInvalidArgument);
  // Level 0 is the daemon's default, 5: level 4 is not enough for it.
  request.set_level(4);
  request.set_drop_loaded(true);
  CHECK(edge.Ask(request).result.usage().level() == 4);
  request.set_level(0);
  request.set_drop_loaded(false);
  CHECK(edge.Ask(request).result.usage().level() == 5);
  // Policy local means K and V without loss; then they serve every level.
  const Answer exact = edge.Ask(Ask(v1::POLICY_LOCAL));
  CHECK(exact.result.usage().blocks_computed() == 30);
  request.set_level(8);
  const Answer resident = edge.Ask(request);
  CHECK(resident.result.usage().bytes_fetched() == 0);
  CHECK(resident.result.usage().blocks_resident() == 30);
}

TEST_CASE("slo_ms chooses the level of policy stream") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  ServerProcess server(TestModel(), folder.path() + "/server");
  TestDaemon edge(EdgeWithServer(folder, server.address()));
  REQUIRE_OK(edge.Add(Document("doc", Prose(12))));
  v1::GenerateRequest request = Ask(v1::POLICY_STREAM);
  request.set_level(5);
  request.set_slo_ms(1);
  CHECK(edge.Ask(request).result.usage().level() == 4);
  request.set_slo_ms(3600000);  // what is loaded is used
  CHECK(edge.Ask(request).result.usage().bytes_fetched() == 0);
  request.set_drop_loaded(true);
  CHECK(edge.Ask(request).result.usage().level() == 8);
  request.set_policy(v1::POLICY_SPARKV);
  request.set_slo_ms(1);
  CHECK(edge.Ask(request).result.usage().level() != 4);
  request.set_slo_ms(3600001);
  CHECK(edge.Ask(request).status.code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("no server at the address: contexts are kept here and computed here") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  const std::string text = Prose(12);
  TestDaemon edge(EdgeWithServer(folder, "127.0.0.1:1"));  // nothing listens there
  const auto added = edge.Add(Document("doc", text));
  REQUIRE_OK(added);
  CHECK_FALSE(added->done().on_server());
  REQUIRE(added->degraded_size() == 1);
  CHECK(Has(added->degraded(0), "server unavailable"));
  const Answer answer = edge.Ask(Ask(v1::POLICY_STREAM));
  REQUIRE_OK(answer.status);
  CHECK(Has(answer.degraded(), "server unavailable"));
  CHECK(answer.result.usage().policy() == "local");
  CHECK(answer.result.usage().blocks_computed() == 30);
  CHECK(answer.ids == Truth(text));
  CHECK(Has(edge.Status().server_state(), "unavailable"));
  const Answer unknown = edge.Ask(Question("nobody", "?"));
  CHECK(unknown.status.code() == absl::StatusCode::kNotFound);
  CHECK(Has(std::string(unknown.status.message()), "unavailable"));
}

TEST_CASE("the server is killed in mid-stream") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  const std::string text = Prose(30);
  auto server = std::make_unique<ServerProcess>(TestModel(), folder.path() + "/server");
  EdgeConfig config = EdgeWithServer(folder, server->address());
  config.shaped = true;
  config.link.rate =
      *RateTrace::Constant(20);  // 15 MB take 6 s: the kill comes well before the end
  TestDaemon edge(config);
  REQUIRE_OK(edge.Add(Lossless("doc", text)));
  bool killed = false;
  const Answer answer = edge.Ask(
      Ask(v1::POLICY_STREAM), [&](const v1::GenerateResponse& response, grpc::ClientContext*) {
        if (killed || !response.has_loading() || response.loading().blocks_done() == 0) return;
        killed = true;
        server->Kill();
      });
  REQUIRE(killed);
  REQUIRE_OK(answer.status);
  CHECK(Has(answer.degraded(), "stream"));
  CHECK(answer.result.usage().blocks_streamed() > 0);
  CHECK(answer.result.usage().blocks_computed() > 0);
  CHECK(answer.result.usage().blocks_streamed() + answer.result.usage().blocks_computed() == 30);
  CHECK(answer.ids == Truth(text));
  // And the next question from memory.
  const Answer again = edge.Ask(Ask(v1::POLICY_STREAM));
  CHECK(again.ids == answer.ids);
  CHECK(again.result.usage().bytes_fetched() == 0);
}

TEST_CASE("stored bytes are damaged: the block is computed here") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  const std::string text = Prose(15);
  ServerProcess server(TestModel(), folder.path() + "/server");
  TestDaemon edge(EdgeWithServer(folder, server.address()));
  REQUIRE_OK(edge.Add(Lossless("doc", text)));
  int damaged = 0;
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(folder.path() + "/server")) {
    if (file.path().extension() != ".col") continue;
    std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    const auto middle = static_cast<std::streamoff>(std::filesystem::file_size(file.path()) / 2);
    bytes.seekg(middle);
    const char byte = static_cast<char>(bytes.get() ^ 0x04);
    bytes.seekp(middle);
    bytes.put(byte);
    ++damaged;
  }
  REQUIRE(damaged == 1);
  const Answer answer = edge.Ask(Ask(v1::POLICY_STREAM));
  REQUIRE_OK(answer.status);
  CHECK(Has(answer.degraded(), "DATA_LOSS"));
  CHECK(answer.result.usage().blocks_computed() > 0);
  CHECK(answer.result.usage().blocks_streamed() > 0);
  CHECK(answer.ids == Truth(text));
}

TEST_CASE("a frame is damaged on its way") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  const std::string text = Prose(15);
  ServerProcess server(TestModel(), folder.path() + "/server");
  testing::FlippingRelay relay(server.address());
  TestDaemon edge(EdgeWithServer(folder, relay.address()));
  REQUIRE_OK(edge.Add(Lossless("doc", text)));
  relay.Arm(1000000);  // manifest and the first blocks pass
  const Answer answer = edge.Ask(Ask(v1::POLICY_STREAM));
  REQUIRE(relay.flipped());
  REQUIRE_OK(answer.status);
  CHECK_FALSE(answer.degraded().empty());
  CHECK(answer.result.usage().blocks_computed() > 0);
  CHECK(answer.ids == Truth(text));
}

TEST_CASE("the server has another model") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  const std::string text = Prose(12);
  // The same file but for one bit of the last weight.
  const std::string other = folder.path() + "/other.gguf";
  std::filesystem::copy_file(TestModel(), other);
  {
    std::fstream bytes(other, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(-1, std::ios::end);
    const char byte = static_cast<char>(bytes.get() ^ 0x01);
    bytes.seekp(-1, std::ios::end);
    bytes.put(byte);
  }
  ServerProcess server(other, folder.path() + "/server");
  TestDaemon edge(EdgeWithServer(folder, server.address()));
  CHECK(Has(edge.Status().server_state(), "mismatch: model fingerprint mismatch"));
  const auto added = edge.Add(Document("doc", text));
  REQUIRE_OK(added);
  CHECK_FALSE(added->done().on_server());
  REQUIRE(added->degraded_size() == 1);
  CHECK(Has(added->degraded(0), "fingerprint mismatch"));
  const Answer answer = edge.Ask(Ask(v1::POLICY_SPARKV));
  REQUIRE_OK(answer.status);
  CHECK(Has(answer.degraded(), "fingerprint mismatch"));
  CHECK(answer.result.usage().bytes_fetched() == 0);
  CHECK(answer.ids == Truth(text));
}

TEST_CASE("the daemon's model was exchanged: its old contexts are refused with a reason") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  {
    TestDaemon edge(LocalConfig(folder));
    REQUIRE_OK(edge.Add(Document("doc", Prose(2))));
  }
  const std::string other = folder.path() + "/other.gguf";
  std::filesystem::copy_file(TestModel(), other);
  {
    std::fstream bytes(other, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-1, std::ios::end);
    bytes.put('\x2A');
  }
  EdgeConfig config = LocalConfig(folder);
  config.model = other;
  TestDaemon edge(config);
  const Answer answer = edge.Ask(Question("doc", "?"));
  CHECK(answer.status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Has(std::string(answer.status.message()), "another model"));
}

TEST_CASE("the server lost the context, and a context that only the server has is found there") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  const std::string text = Prose(12);
  ServerProcess server(TestModel(), folder.path() + "/server");
  std::string id;
  {
    TestDaemon edge(EdgeWithServer(folder, server.address()));
    const auto added = edge.Add(Lossless("doc", text));
    REQUIRE_OK(added);
    id = added->done().id();
  }
  const std::vector<int32_t> truth = Truth(text);
  {
    TempFolder elsewhere;
    TestDaemon edge(EdgeWithServer(elsewhere, server.address()));
    const Answer answer = edge.Ask(Ask(v1::POLICY_STREAM));  // by name
    REQUIRE_OK(answer.status);
    CHECK(answer.degraded().empty());
    CHECK(answer.result.usage().blocks_streamed() > 0);
    CHECK(answer.ids == truth);
    CHECK(edge.Ask(Question(id.substr(0, 12), kQuestion)).ids == truth);
    v1::DeleteContextRequest remove;
    remove.set_context("doc");
    v1::DeleteContextResponse removed;
    grpc::ClientContext context;
    REQUIRE(edge.stub()->DeleteContext(&context, remove, &removed).ok());
    CHECK(removed.degraded_size() == 0);
  }
  TestDaemon edge(EdgeWithServer(folder, server.address()));
  const Answer answer = edge.Ask(Ask(v1::POLICY_STREAM));
  REQUIRE_OK(answer.status);
  CHECK(Has(answer.degraded(), "does not have this context"));
  CHECK(answer.ids == truth);
}

TEST_CASE("TLS: the right roots stream, wrong ones compute here") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  const testing::TestCertificate files = testing::MakeTestCertificate(folder.path(), "server");
  const testing::TestCertificate wrong = testing::MakeTestCertificate(folder.path(), "wrong");
  ServerProcess server(TestModel(), folder.path() + "/server",
                       {"--tls-cert", files.certificate, "--tls-key", files.key});
  EdgeConfig config = EdgeWithServer(folder, server.address());
  config.tls = {.enabled = true, .ca_file = files.certificate, .server_name = "localhost"};
  {
    TestDaemon edge(config);
    const auto added = edge.Add(Lossless("doc", Prose(12)));
    REQUIRE_OK(added);
    CHECK(added->degraded_size() == 0);
    const Answer answer = edge.Ask(Ask(v1::POLICY_STREAM));
    REQUIRE_OK(answer.status);
    CHECK(answer.degraded().empty());
    CHECK(answer.result.usage().blocks_streamed() > 0);
  }
  config.tls.ca_file = wrong.certificate;
  TestDaemon edge(config);
  const Answer answer = edge.Ask(Ask(v1::POLICY_STREAM));
  REQUIRE_OK(answer.status);
  CHECK(Has(answer.degraded(), "server unavailable"));
  CHECK(answer.result.usage().bytes_fetched() == 0);
}

TEST_CASE("a client that goes away ends the stream, and nothing of it stays") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  ServerProcess server(TestModel(), folder.path() + "/server");
  EdgeConfig config = EdgeWithServer(folder, server.address());
  config.shaped = true;
  config.link.rate = *RateTrace::Constant(2);
  TestDaemon edge(config);
  REQUIRE_OK(edge.Add(Lossless("doc", Prose(12))));
  const Answer answer = edge.Ask(Ask(v1::POLICY_STREAM), [](const v1::GenerateResponse& response,
                                                            grpc::ClientContext* context) {
    if (response.has_loading()) context->TryCancel();
  });
  CHECK(answer.status.code() == absl::StatusCode::kCancelled);
  REQUIRE_OK(edge.Ask(Question("", "Hello", 1)).status);
  CHECK(edge.Status().contexts_loaded() == 0);
  CHECK(edge.Status().kv_used_bytes() == 0);
}

// A profile that fits the test's model and knows nothing of it.
std::string ModelProfile(uint64_t seed, bool other_model = false, float most_predict = 0.1f) {
  const auto model = Model::Load(TestModel());
  REQUIRE_OK(model);
  const ModelConfig& config = (*model)->config();
  testing::ServedProfileOptions options{.geometry = config.Geometry(KvDtype::kF16),
                                        .model_fingerprint = (*model)->fingerprint(),
                                        .d_model = config.d_model,
                                        .step = 0.5f,
                                        .most_predict = most_predict,
                                        .seed = seed};
  if (other_model) options.model_fingerprint[0] ^= 1;
  return testing::ServedProfile(options);
}

std::string FileWith(const TempFolder& folder, const std::string& name, const std::string& bytes) {
  const std::string path = folder.path() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

void AwaitProfile(TestDaemon* edge) {
  v1::StatusResponse status;
  do {
    std::this_thread::yield();
    status = edge->Status();
    REQUIRE(status.profiles_size() == 1);
  } while (status.profiles(0).state() == "fetching");
  CHECK(status.profiles(0).state() == "held");
  CHECK(status.profiles(0).codec() == "aatc-pred");
}

TEST_CASE("Contexts travel as generic until the server's profile is here, then as aatc-pred") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  const std::string bytes = ModelProfile(1);
  ServerProcess server(TestModel(), folder.path() + "/server",
                       {"--insecure", "--profile", FileWith(folder, "p.skvp", bytes)});
  const std::string text = Prose(3);
  std::string id;
  {
    TestDaemon edge(EdgeWithServer(folder, server.address()));
    const auto cold = edge.Add(Document("cold", text));
    REQUIRE_OK(cold);
    CHECK(cold->done().codec() == "generic");
    CHECK(cold->done().on_server());
    REQUIRE(cold->degraded_size() == 1);
    CHECK(Has(cold->degraded(0), "aatc-pred"));
    AwaitProfile(&edge);
    CHECK(edge.Status().profiles(0).bytes() == bytes.size());
    const auto warm = edge.Add(Document("warm", text));
    REQUIRE_OK(warm);
    CHECK(warm->done().codec() == "aatc-pred");
    CHECK(warm->done().on_server());
    CHECK(warm->degraded_size() == 0);
    CHECK(warm->done().stored_bytes() > 0);
    id = warm->done().id();
    CHECK(id != cold->done().id());
    // A known name with the same content stays what it is.
    const auto again = edge.Add(Document("cold", text));
    REQUIRE_OK(again);
    CHECK(again->done().id() == cold->done().id());
    CHECK(again->degraded_size() == 0);
  }
  // The profile is damaged on the disk: a context that needs it is computed here meanwhile, and
  // another one that asks for the codec by name waits for the profile.
  const std::string file =
      std::filesystem::directory_iterator(folder.path() + "/edge/profiles")->path().string();
  std::ofstream(file, std::ios::binary) << "damaged";
  TestDaemon edge(EdgeWithServer(folder, server.address()));
  v1::GenerateRequest request = Question("warm", kQuestion);
  const Answer answer = edge.Ask(request);
  REQUIRE_OK(answer.status);
  CHECK(Has(answer.degraded(), "profile"));
  CHECK(answer.result.usage().policy() == "local");
  CHECK(answer.result.usage().profile_bytes() == 0);
  v1::AddContextRequest named = Document("named", text);
  named.set_codec("aatc-pred");
  const auto added = edge.Add(named);
  REQUIRE_OK(added);
  CHECK(added->done().codec() == "aatc-pred");
  CHECK(added->done().id() == id);
  AwaitProfile(&edge);
}

TEST_CASE("A context whose predictions need a streamed base is never split inside a column") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  const std::string bytes = ModelProfile(1, /*other_model=*/false, /*most_predict=*/2.0f);
  ServerProcess server(TestModel(), folder.path() + "/server",
                       {"--insecure", "--profile", FileWith(folder, "p.skvp", bytes)});
  TestDaemon edge(EdgeWithServer(folder, server.address()));
  v1::AddContextRequest named = Document("doc", Prose(8));
  named.set_codec("aatc-pred");
  REQUIRE_OK(edge.Add(named));
  for (const v1::Policy policy : {v1::POLICY_CAKE, v1::POLICY_SPARKV}) {
    v1::GenerateRequest request = Question("doc", kQuestion);
    request.set_policy(policy);
    request.set_drop_loaded(true);
    const Answer answer = edge.Ask(request);
    REQUIRE_OK(answer.status);
    std::map<uint32_t, std::pair<uint32_t, uint32_t>> columns;  // streamed, computed above layer 0
    for (const v1::BlockEvent& event : answer.result.timeline()) {
      if (event.layer() == 0) continue;
      if (event.kind() == v1::BlockEvent::STREAMED) ++columns[event.column()].first;
      if (event.kind() == v1::BlockEvent::COMPUTED) ++columns[event.column()].second;
    }
    CHECK_FALSE(columns.empty());
    for (const auto& [column, count] : columns) CHECK((count.first == 0 || count.second == 0));
  }
}

TEST_CASE("A codec that the server has no profile of is refused by name, and not used otherwise") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  ServerProcess server(TestModel(), folder.path() + "/server");
  EdgeConfig config = EdgeWithServer(folder, server.address());
  config.contexts.codec = "aatc-pred";
  TestDaemon edge(config);
  const auto added = edge.Add(Document("doc", Prose(3)));
  REQUIRE_OK(added);
  CHECK(added->done().codec() == "generic");
  CHECK(Has(added->degraded(0), "has no profile of aatc-pred"));
  v1::AddContextRequest named = Document("named", Prose(3));
  named.set_codec("aatc-pred");
  CHECK(absl::IsFailedPrecondition(edge.Add(named).status()));
  server.Kill();
  CHECK(absl::IsUnavailable(edge.Add(named).status()));
}

TEST_CASE("sparkv-server refuses a profile of another model and names both fingerprints") {
  SPARKV_NEED_MODEL();
  TempFolder folder;
  const std::string file = FileWith(folder, "p.skvp", ModelProfile(1, /*other_model=*/true));
  auto process = cli::Subprocess::Start(
      {testing::BuiltProgram("server/sparkv-server"), "--listen", "127.0.0.1:0", "--model",
       TestModel(), "--data-dir", folder.path() + "/server", "--insecure", "--profile", file},
      folder.path() + "/log");
  REQUIRE_OK(process);
  CHECK_FALSE((*process)->ReadUntil("listening on ", absl::Minutes(2)).ok());
  std::ifstream log(folder.path() + "/log");
  const std::string text((std::istreambuf_iterator<char>(log)), {});
  CHECK(Has(text, "is of another model"));
  CHECK(Has(text, file));
}

}  // namespace
}  // namespace sparkv
