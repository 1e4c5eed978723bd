// Which codec a context gets, and which manifests are believed, against a server on loopback that
// says what a test wants. Nothing is computed.
#include "edge/contexts.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/codec/dec_aatc.h"
#include "common/kv/context_id.h"
#include "common/rpc/wire.h"
#include "tests/edge/daemon_fixture.h"
#include "tests/testing/served_profile.h"

namespace sparkv {
namespace {

using testing::Document;
using testing::TempFolder;
using testing::TestModel;

std::string Bytes(const Digest& digest) { return std::string(AsStringView(digest)); }

const CancelledFn kNever = [] { return false; };

class FakeServer final : public v1::KvCache::Service {
 public:
  FakeServer() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    client = ServerClient::Create(absl::StrCat("127.0.0.1:", port), {.enabled = false}).value();
  }
  ~FakeServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* response) override {
    *response = info;
    return grpc::Status::OK;
  }
  grpc::Status Lookup(grpc::ServerContext*, const v1::LookupRequest* request,
                      v1::Manifest* response) override {
    if (request->context_id() != manifest.context_id())
      return {grpc::StatusCode::NOT_FOUND, "no such context"};
    *response = manifest;
    return grpc::Status::OK;
  }
  grpc::Status GetProfile(grpc::ServerContext*, const v1::GetProfileRequest*,
                          grpc::ServerWriter<v1::ProfileChunk>* writer) override {
    for (size_t at = 0; at < profile.size(); at += kMaxProfileChunkBytes) {
      v1::ProfileChunk chunk;
      chunk.set_total_bytes(profile.size());
      chunk.set_data(profile.substr(at, kMaxProfileChunkBytes));
      writer->Write(chunk);
    }
    return profile.empty() ? grpc::Status(grpc::StatusCode::NOT_FOUND, "no such profile")
                           : grpc::Status::OK;
  }

  v1::ServerInfo info;
  v1::Manifest manifest;
  std::string profile;
  std::unique_ptr<ServerClient> client;

 private:
  std::unique_ptr<grpc::Server> server_;
};

struct Rig {
  TempFolder folder;
  FakeServer server;
  std::shared_ptr<const Model> model = Model::Load(TestModel()).value();
  std::unique_ptr<ProfileStore> profiles;
  std::unique_ptr<Contexts> contexts;
  testing::ServedProfileOptions tiny;

  Rig() {
    tiny = {.geometry = model->config().Geometry(KvDtype::kF16),
            .model_fingerprint = model->fingerprint(),
            .d_model = model->config().d_model};
    server.info.set_model_fingerprint(Bytes(model->fingerprint()));
    server.info.add_codecs("aatc-pred");
    server.info.add_codecs("generic");
  }
  // What the server says from now on.
  Digest SetProfile(std::string bytes) {
    server.profile = std::move(bytes);
    const Digest digest = Sha256().Update(AsBytes(server.profile)).Finish();
    server.info.clear_profiles();
    v1::ServerProfile* one = server.info.add_profiles();
    one->set_codec("aatc-pred");
    one->set_digest(Bytes(digest));
    one->set_bytes(server.profile.size());
    return digest;
  }
  Contexts* Open(ContextsOptions options, bool with_server = true) {
    contexts.reset();
    profiles.reset();
    ProfileFetcher fetcher = [this](const Digest& digest, uint64_t max_bytes,
                                    const std::function<void(uint64_t, uint64_t)>& progress,
                                    const CancelledFn& cancelled) {
      return server.client->GetProfile(digest, max_bytes, progress, cancelled);
    };
    profiles = ProfileStore::Open({.folder = folder.path() + "/profiles",
                                   .model_fingerprint = model->fingerprint(),
                                   .first_retry = absl::Milliseconds(1),
                                   .last_retry = absl::Milliseconds(1)},
                                  with_server ? fetcher : nullptr)
                   .value();
    contexts = std::make_unique<Contexts>(
        model, Catalogue::Open(folder.path() + "/contexts").value(),
        with_server ? server.client.get() : nullptr, profiles.get(), std::move(options));
    return contexts.get();
  }
  absl::StatusOr<v1::AddContextResponse> Add(const std::string& name,
                                             const std::string& codec = "") {
    v1::AddContextRequest request = Document(name, "A short text about " + name + ".");
    request.set_codec(codec);
    return contexts->Add(request, CancelToken(), [](const v1::AddContextResponse&) {});
  }
  // A context that the server has, in aatc-pred with `profile`.
  Manifest Stored(const Digest& profile) {
    Manifest m;
    m.model_fingerprint = model->fingerprint();
    m.codec = "aatc-pred";
    m.codec_digest = CodecDigest(AatcPredInfo(), &profile);
    m.profile_digest = profile;
    m.geometry = model->config().Geometry(KvDtype::kF16);
    m.planes = 5;
    m.tokens = {1, 2, 3};
    const auto keys = ColumnKeys(
        {.model_fingerprint = m.model_fingerprint, .codec_digest = m.codec_digest}, m.tokens);
    m.context_id = keys.back();
    m.columns = {{.key = keys.back(),
                  .tokens = 3,
                  .items = std::vector<ItemInfo>(size_t{m.geometry.layers} * 5, {2, 0})}};
    return m;
  }
  ResolvedContext Resolve(const Manifest& m) {
    server.manifest = ToProto(m);
    const auto context = contexts->Resolve(DigestToHex(m.context_id), kNever);
    REQUIRE_OK(context);
    CHECK(context->entry.codec == m.codec);
    return *context;
  }
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a context on the server comes with its profile, waited for or fetched beside it") {
  SPARKV_NEED_MODEL();
  Rig rig;
  const Digest digest = rig.SetProfile(testing::ServedProfile(rig.tiny));
  rig.Open({});
  const Manifest stored = rig.Stored(digest);
  const ResolvedContext cold = rig.Resolve(stored);
  CHECK_FALSE(cold.manifest.has_value());
  CHECK(cold.profile == nullptr);
  CHECK(Has(cold.degraded, "being fetched"));
  CHECK(rig.contexts->LevelFor(cold.entry, 0, 0).value() == 1);
  CHECK(rig.contexts->LevelFor(cold.entry, 5, 0).value() == 5);
  CHECK(absl::IsInvalidArgument(rig.contexts->LevelFor(cold.entry, 6, 0).status()));
  REQUIRE_OK(rig.profiles->Wait(digest, absl::InfiniteDuration(), kNever));
  ResolvedContext warm = *rig.contexts->Resolve(DigestToHex(stored.context_id), kNever);
  CHECK_FALSE(warm.manifest.has_value());  // known here now: it takes a look-up
  rig.contexts->LookUp(&warm, kNever);
  CHECK(warm.degraded == "");
  REQUIRE(warm.manifest.has_value());
  REQUIRE(warm.profile != nullptr);
  CHECK(warm.profile->digest() == digest);
  CHECK(warm.profile_bytes == 0);

  rig.tiny.seed = 2;
  const Digest other = rig.SetProfile(testing::ServedProfile(rig.tiny));
  rig.Open({.profile_wait = absl::InfiniteDuration()});
  const ResolvedContext waited = rig.Resolve(rig.Stored(other));
  REQUIRE(waited.profile != nullptr);
  CHECK(waited.profile_ms > 0);
  CHECK(waited.profile_bytes == rig.server.profile.size());
  CHECK(waited.lookup_ms >= 0);
}

TEST_CASE("a manifest whose codec and profile do not fit is not used, whatever it claims") {
  SPARKV_NEED_MODEL();
  Rig rig;
  const Digest digest = rig.SetProfile(testing::ServedProfile(rig.tiny));
  rig.Open({.profile_wait = absl::InfiniteDuration()});
  const auto reason = [&](const Manifest& m) {
    const ResolvedContext context = rig.Resolve(m);
    CHECK_FALSE(context.manifest.has_value());
    CHECK(context.profile == nullptr);
    return context.degraded;
  };
  const auto rekey = [](Manifest* m) {
    m->context_id = m->columns[0].key =
        ColumnKeys({.model_fingerprint = m->model_fingerprint, .codec_digest = m->codec_digest},
                   m->tokens)
            .back();
  };
  Manifest m = rig.Stored(digest);
  m.profile_digest.reset();
  CHECK(Has(reason(m), "without a profile"));
  m = rig.Stored(digest);
  m.codec = "generic";
  m.codec_digest = CodecDigest(FindDecoder("generic").value()->info());
  rekey(&m);
  CHECK(Has(reason(m), "with a profile"));
  m = rig.Stored(digest);
  m.profile_digest = Digest{9};
  m.tokens[0] = 7;
  rekey(&m);
  CHECK(Has(reason(m), "with another profile"));
  m = rig.Stored(digest);
  m.codec = "zip";
  m.tokens[0] = 8;
  rekey(&m);
  CHECK(Has(reason(m), "codec mismatch"));

  // Of this model, it says, but of another shape.
  rig.tiny.geometry.layers = 4;
  CHECK(Has(reason(rig.Stored(rig.SetProfile(testing::ServedProfile(rig.tiny)))), "K and V of"));
  rig.tiny.model_fingerprint[0] ^= 1;
  CHECK(Has(reason(rig.Stored(rig.SetProfile(testing::ServedProfile(rig.tiny)))), "another model"));
  rig.server.profile.clear();
  CHECK(Has(reason(rig.Stored(Digest{5})), "no such profile"));
}

TEST_CASE("the codec of an added context: named, configured, or the server's default") {
  SPARKV_NEED_MODEL();
  Rig rig;
  rig.SetProfile(testing::ServedProfile(rig.tiny));
  rig.Open({});
  CHECK(rig.Add("cold")->done().codec() == "generic");
  // Named: waits for the profile. The fake server cannot precompute: that is only degraded.
  CHECK(rig.Add("named", "aatc-pred")->done().codec() == "aatc-pred");
  CHECK(rig.Add("warm")->done().codec() == "aatc-pred");
  CHECK(rig.Add("cold")->done().codec() == "generic");
  CHECK(absl::IsFailedPrecondition(rig.Add("none", "aatc").status()));
  CHECK(absl::IsInvalidArgument(rig.Add("zip", "zip").status()));
  rig.server.info.set_codecs(0, "f16");
  CHECK(rig.Add("f16")->done().codec() == "f16");
  rig.server.info.set_codecs(0, "of a later version");
  CHECK(rig.Add("later")->done().codec() == "generic");
  rig.Open({.codec = "aatc-pred"});
  CHECK(rig.Add("configured")->done().codec() == "aatc-pred");
  rig.server.info.mutable_profiles(0)->set_digest("short");
  const auto bad = rig.Add("bad digest");
  REQUIRE_OK(bad);
  CHECK(bad->done().codec() == "generic");
  CHECK(Has(bad->degraded(0), "bad profile digest"));
  rig.server.info.set_model_fingerprint(std::string(32, 'x'));
  CHECK(rig.Add("held", "aatc-pred")->done().codec() == "aatc-pred");  // what is here

  // Without a server: the profile that is here, or none.
  rig.Open({}, /*with_server=*/false);
  CHECK(rig.Add("local")->done().codec() == "generic");
  CHECK(rig.Add("local named", "aatc-pred")->done().codec() == "aatc-pred");
  CHECK(absl::IsUnavailable(rig.Add("local none", "aatc").status()));
}

}  // namespace
}  // namespace sparkv
