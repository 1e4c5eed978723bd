#include "common/base/crc32c.h"

#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "tests/catch.h"

namespace sparkv {
namespace {

// RFC 3720 appendix B.4.
TEST_CASE("CRC-32C of the published vectors") {
  CHECK(Crc32c(std::vector<uint8_t>(32, 0)) == 0x8A9136AAu);
  CHECK(Crc32c(std::vector<uint8_t>(32, 0xFF)) == 0x62A8AB43u);
  std::vector<uint8_t> up(32);
  for (int i = 0; i < 32; ++i) up[i] = static_cast<uint8_t>(i);
  CHECK(Crc32c(up) == 0x46DD794Eu);
  CHECK(Crc32c(AsBytes("123456789")) == 0xE3069283u);
}

TEST_CASE("a CRC continues over a split at every place") {
  const std::string text = "a chunk of bytes that is cut somewhere in the middle";
  const uint32_t whole = Crc32c(AsBytes(text));
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t first = Crc32c(AsBytes(text.substr(0, cut)));
    CHECK(Crc32c(AsBytes(text.substr(cut)), first) == whole);
  }
}

}  // namespace
}  // namespace sparkv
