#include "server/codecs.h"

#include "tests/catch.h"
#include "tests/server/fake_prefiller.h"

namespace sparkv {
namespace {

using testing::FakePrefiller;
using testing::FakeProfile;
using testing::FileWith;
using testing::kWideGeometry;
using testing::ServedProfile;
using testing::ServedProfileOptions;
using testing::TempFolder;

bool Says(const absl::Status& status, const std::string& part) {
  return std::string(status.message()).find(part) != std::string::npos;
}

TEST_CASE("Without a profile generic is the default and aatc-pred is refused with what there is") {
  const auto codecs = ServerCodecs::Create({}, FakePrefiller(), "");
  REQUIRE_OK(codecs);
  CHECK((*codecs)->names().front() == "generic");
  CHECK((*codecs)->names().size() == CodecNames().size());
  CHECK((*codecs)->WithProfile().empty());
  const absl::Status missing = (*codecs)->Find("aatc-pred").status();
  CHECK(absl::IsFailedPrecondition(missing));
  CHECK(Says(missing, "profile"));
  CHECK(Says(missing, "generic, f16"));
  CHECK(absl::IsFailedPrecondition((*codecs)->Find("zip").status()));
  CHECK((*ServerCodecs::Create({}, FakePrefiller(), "f16"))->names().front() == "f16");
  CHECK(
      absl::IsFailedPrecondition(ServerCodecs::Create({}, FakePrefiller(), "aatc-pred").status()));
}

TEST_CASE("A profile brings its codec, aatc-pred as the default unless another one was chosen") {
  TempFolder folder;
  const FakePrefiller fake(kWideGeometry);
  ServedProfileOptions options = FakeProfile();
  const std::string pred = FileWith(folder, "pred", ServedProfile(options));
  options.predict = false;
  const std::string plain = FileWith(folder, "plain", ServedProfile(options));
  const auto both = ServerCodecs::Create({plain, pred}, fake, "");
  REQUIRE_OK(both);
  CHECK((*both)->names().front() == "aatc-pred");
  CHECK((*both)->names().size() == CodecNames().size() + 2);
  CHECK((*ServerCodecs::Create({plain}, fake, ""))->names().front() == "generic");
  CHECK((*ServerCodecs::Create({plain, pred}, fake, "aatc"))->names().front() == "aatc");
  const auto codec = (*both)->Find("aatc-pred");
  REQUIRE_OK(codec);
  const Digest digest = (*codec)->profile->digest();
  CHECK((*codec)->encoder->digest() == CodecDigest((*codec)->info(), &digest));
  CHECK((*both)->FindProfile(digest).value() == (*codec)->profile);
  CHECK(absl::IsNotFound((*both)->FindProfile(Digest{}).status()));
}

TEST_CASE("What is no profile of this model is refused with the file's name") {
  TempFolder folder;
  const FakePrefiller fake(kWideGeometry);
  const auto refused = [&](const std::vector<std::string>& files) {
    const absl::Status status = ServerCodecs::Create(files, fake, "").status();
    CHECK(Says(status, folder.path()));
    return status;
  };
  ServedProfileOptions options = FakeProfile();
  const std::string good = FileWith(folder, "good", ServedProfile(options));
  options.seed = 2;
  const std::string second = FileWith(folder, "second", ServedProfile(options));
  CHECK(absl::IsFailedPrecondition(refused({good, second})));

  options.model_fingerprint[0] ^= 1;
  const absl::Status other = refused({FileWith(folder, "other", ServedProfile(options))});
  CHECK(absl::IsFailedPrecondition(other));
  CHECK(Says(other, DigestToHex(options.model_fingerprint)));
  CHECK(Says(other, DigestToHex(fake.fingerprint())));

  options = FakeProfile();
  options.geometry.layers = 4;
  CHECK(absl::IsFailedPrecondition(refused({FileWith(folder, "layers", ServedProfile(options))})));
  options = FakeProfile();
  options.d_model = 64;
  CHECK_FALSE(refused({FileWith(folder, "width", ServedProfile(options))}).ok());

  std::string bytes = ServedProfile(FakeProfile());
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  CHECK(absl::IsDataLoss(refused({FileWith(folder, "damaged", bytes)})));
  CHECK(absl::IsDataLoss(refused({FileWith(folder, "empty", "")})));
  CHECK(absl::IsNotFound(refused({folder.path() + "/absent"})));
}

}  // namespace
}  // namespace sparkv
