#include "common/base/sha256.h"

#include "tests/catch.h"

namespace sparkv {
namespace {

// FIPS 180-4 example.
TEST_CASE("SHA-256 of abc") {
  CHECK(DigestToHex(Sha256().Update(std::string_view("abc")).Finish()) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("fields with shifted boundaries give different digests") {
  const Digest a = Sha256().Field("ab", "c").Finish();
  const Digest b = Sha256().Field("a", "bc").Finish();
  const Digest c = Sha256().Field("ab", "").Field("c", "").Finish();
  CHECK(a != b);
  CHECK(a != c);
  CHECK(b != c);
}

TEST_CASE("digests convert to hex and back, and wrong text is refused") {
  const Digest d = Sha256().Field("x", uint64_t{7}).Finish();
  const auto back = DigestFromHex(DigestToHex(d));
  REQUIRE_OK(back);
  CHECK(*back == d);
  CHECK_FALSE(DigestFromHex("abcd").ok());
  CHECK_FALSE(DigestFromHex(std::string(63, 'a') + "g").ok());
  CHECK_FALSE(DigestFromBytes("short").ok());
}

}  // namespace
}  // namespace sparkv
