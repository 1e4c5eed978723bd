#include "common/base/bytes.h"

#include "tests/catch.h"

namespace sparkv {
namespace {

TEST_CASE("a reader returns little-endian values and names the field that is short") {
  const uint8_t raw[] = {0x01, 0x02, 0x03, 0x04, 0xFF};
  ByteReader reader(raw);
  const auto value = reader.Read<uint32_t>("count");
  REQUIRE_OK(value);
  CHECK(*value == 0x04030201u);
  const auto missing = reader.Read<uint16_t>("flags");
  REQUIRE(missing.status().code() == absl::StatusCode::kDataLoss);
  CHECK(missing.status().message() == "flags: needs 2 bytes at offset 4, 1 left");
  CHECK(reader.remaining() == 1);
}

TEST_CASE("a huge length is refused without arithmetic overflow") {
  const uint8_t raw[] = {1, 2, 3};
  ByteReader reader(raw);
  CHECK_FALSE(reader.ReadBytes(UINT64_MAX, "name").ok());
  CHECK_FALSE(reader.ReadBytes(uint64_t{1} << 63, "name").ok());
  CHECK(reader.remaining() == 3);
}

TEST_CASE("what a writer wrote a reader reads") {
  ByteWriter writer;
  writer.Write<uint64_t>(0x1122334455667788u);
  writer.Write<float>(-1.5f);
  writer.WriteBytes("abc");
  ByteReader reader(AsBytes(writer.str()));
  CHECK(*reader.Read<uint64_t>("a") == 0x1122334455667788u);
  CHECK(*reader.Read<float>("b") == -1.5f);
  CHECK(AsStringView(*reader.ReadBytes(3, "c")) == "abc");
  CHECK(reader.remaining() == 0);
}

TEST_CASE("checked arithmetic reports overflow") {
  uint64_t out = 0;
  CHECK_FALSE(CheckedMul(uint64_t{1} << 33, uint64_t{1} << 31, &out));
  CHECK(CheckedMul(uint64_t{1} << 32, uint64_t{1} << 31, &out));
  CHECK_FALSE(CheckedAdd(UINT64_MAX, 1, &out));
}

}  // namespace
}  // namespace sparkv
