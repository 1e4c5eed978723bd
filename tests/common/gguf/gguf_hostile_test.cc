// Malformed files: cases on which other readers crashed, aborted or took all memory, and their
// kinds.
#include <limits>
#include <string>
#include <vector>

#include "common/gguf/gguf_reader.h"
#include "tests/catch.h"
#include "tests/common/gguf/gguf_bytes.h"
#include "tests/testing/count_allocations.h"

using namespace sparkv;
using sparkv::testing::allocated_bytes;
using sparkv::testing::GgufBytes;
using sparkv::testing::GgufString;
using sparkv::testing::ParsedGguf;
using sparkv::testing::Raw;

namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kShort = absl::StatusCode::kDataLoss;
constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;

// The file must be refused with this code and a message that has all parts, without large
// allocations.
void Refused(const std::string& file, absl::StatusCode code,
             const std::vector<std::string>& parts) {
  allocated_bytes = 0;
  const ParsedGguf parsed(file);
  const size_t taken = allocated_bytes;
  INFO(parsed.reader.status().ToString());
  REQUIRE(parsed.reader.status().code() == code);
  for (const std::string& part : parts) {
    INFO("looking for: " << part);
    REQUIRE(parsed.message().find(part) != std::string::npos);
  }
  REQUIRE(taken < 100000 + 4 * file.size());
}

}  // namespace

TEST_CASE("G1: a dimension of 0 is refused by tensor and dimension") {
  const std::string file = GgufBytes().Tensor("t", {1, 0}, 0, 0).Build();
  CHECK(file.size() == 65);
  Refused(file, kInvalid, {"tensor t", "dimension 1", "0"});
  Refused(GgufBytes().Tensor("t", {0}, 0, 0).Build(), kInvalid, {"tensor t", "dimension 0"});
  Refused(GgufBytes().Tensor("t", {8, 1, 0, 1}, 3, 0).Build(), kInvalid,
          {"tensor t", "dimension 2"});
}

TEST_CASE("dimensions, types and sizes that can't be are refused by tensor") {
  Refused(GgufBytes().Tensor("t", {}, 0, 0).Build(), kInvalid,
          {"tensor t", "0 dimensions", "1..4"});
  Refused(GgufBytes().Tensor("t", {1, 1, 1, 1, 1}, 0, 0).Build(), kInvalid,
          {"tensor t", "5 dimensions"});
  Refused(GgufBytes().Tensor("t", {uint64_t{1} << 33, uint64_t{1} << 33}, 0, 0).Build(), kInvalid,
          {"tensor t", "dimension 1", "overflows"});
  Refused(GgufBytes().Tensor("t", {uint64_t{1} << 32, (uint64_t{1} << 32) - 1}, 0, 0).Build(),
          kInvalid, {"tensor t", "bytes overflows"});
  Refused(GgufBytes().Tensor("t", {uint64_t{1} << 61}, 0, 0).Build(), kShort, {"tensor t"});
  Refused(GgufBytes().Tensor("t", {33}, 3, 0).Build(), kInvalid, {"tensor t", "33", "Q4_1", "32"});
  Refused(GgufBytes().Tensor("t", {32}, 23, 0).Build(), kUnsupported,
          {"tensor t", "IQ4_XS", "Q4_1"});
  Refused(GgufBytes().Tensor("t", {32}, 0xFFFFFFFF, 0).Build(), kUnsupported,
          {"tensor t", "4294967295"});
  Refused(GgufBytes().Tensor("", {32}, 0, 0).Data(std::string(128, 'x')).Build(), kInvalid,
          {"tensor 0", "empty"});
  Refused(GgufBytes().Tensor(std::string(2000, 'n'), {1}, 0, 0).Build(), kInvalid,
          {"tensor 0", "2000"});
}

TEST_CASE("tensor data outside the file is refused by tensor") {
  const auto file = [](uint64_t offset, size_t bytes) {
    return GgufBytes().Tensor("t", {8}, 0, offset).Data(std::string(bytes, 'x')).Build();
  };
  CHECK(ParsedGguf(file(0, 32)).reader.ok());
  CHECK(ParsedGguf(file(32, 64)).reader.ok());
  Refused(file(0, 31), kShort, {"tensor t", "32 bytes"});
  Refused(file(32, 63), kShort, {"tensor t", "offset 32"});
  Refused(file(1, 64), kInvalid, {"tensor t", "offset 1", "alignment 32"});
  Refused(file(std::numeric_limits<uint64_t>::max() - 31, 64), kShort, {"tensor t"});
  Refused(file(uint64_t{1} << 63, 64), kShort, {"tensor t"});
}

TEST_CASE("G2: alignments that are 0, no power of two, huge or of another type are refused") {
  const auto file = [](uint32_t type, const std::string& raw) {
    return GgufBytes().Key("general.alignment", type, raw).Build();
  };
  CHECK(file(4, Raw<uint32_t>(0)).size() == 57);
  Refused(file(4, Raw<uint32_t>(0)), kInvalid, {"general.alignment", "is 0", "powers of two"});
  Refused(file(4, Raw<uint32_t>(3)), kInvalid, {"general.alignment", "is 3", "powers of two"});
  Refused(file(4, Raw<uint32_t>(0xFFFFFFFF)), kInvalid, {"general.alignment"});
  Refused(file(5, Raw<int32_t>(32)), kInvalid, {"general.alignment", "INT32", "UINT32"});
  Refused(file(10, Raw<uint64_t>(32)), kInvalid, {"general.alignment", "UINT64", "UINT32"});
  Refused(file(8, GgufString("32")), kInvalid, {"general.alignment", "STRING", "UINT32"});
  Refused(GgufBytes().U32("general.alignment", 1u << 30).Tensor("t", {8}, 0, 0).Build(), kInvalid,
          {"general.alignment", "1073741824"});
  Refused(GgufBytes().U32("general.alignment", 1u << 31).Build(), kInvalid, {"general.alignment"});
  // No key: 32.
  const ParsedGguf parsed(GgufBytes().Tensor("t", {1}, 0, 0).Data("abcd").Build(32));
  REQUIRE_OK(parsed.reader);
  CHECK((*parsed.reader)->FindTensor("t")->offset % 32 == 0);
  // A large but allowed one costs no memory.
  Refused(GgufBytes().U32("general.alignment", 1u << 20).Tensor("t", {8}, 0, 0).Build(), kShort,
          {"tensor t"});
}

TEST_CASE("G3: lengths and counts beyond the file are refused before anything is allocated") {
  const std::string head = "GGUF" + Raw<uint32_t>(3) + Raw<uint64_t>(0) + Raw<uint64_t>(1);
  CHECK(head.size() + 8 == 32);
  // Too short for even one key: the count is wrong.
  Refused(head + Raw<uint64_t>(0xFFFFFFFFFFFF), kShort, {});
  Refused(head + Raw<uint64_t>(uint64_t{1} << 63), kShort, {});
  Refused(head + Raw<uint64_t>(0xFFFFFFFFFFFF) + "twelve bytes", kShort,
          {"metadata 0", "key", "281474976710655"});
  Refused(head + Raw<uint64_t>(uint64_t{1} << 63) + "twelve bytes", kShort,
          {"metadata 0", "key", "9223372036854775808"});
  const std::string empty_key = GgufBytes().Key("", 0, Raw<uint8_t>(0)).Build();
  CHECK(empty_key.size() == 37);
  Refused(empty_key, kInvalid, {"metadata 0", "empty"});
  Refused(GgufBytes().CountKeys(std::numeric_limits<uint64_t>::max()).Build(), kShort,
          {"metadata count", "18446744073709551615"});
  Refused(GgufBytes().CountTensors(uint64_t{1} << 58).Build(), kShort,
          {"tensor count", "288230376151711744"});
  Refused(GgufBytes().Key("s", 8, Raw<uint64_t>(uint64_t{1} << 40) + "abc").Build(), kShort,
          {"key s", "1099511627776"});
  Refused(
      GgufBytes().Key("s", 8, Raw<uint64_t>(std::numeric_limits<uint64_t>::max()) + "abc").Build(),
      kShort, {"key s"});
  Refused(GgufBytes().Key(std::string(70000, 'k'), 0, Raw<uint8_t>(0)).Build(), kInvalid,
          {"metadata 0", "70000"});
  Refused(GgufBytes().Tensor("t", {1}, 0, 0).Build().substr(0, 24) +
              Raw<uint64_t>(uint64_t{1} << 62) + std::string(64, '\0'),
          kShort, {"tensor 0", "name", "4611686018427387904"});
}

TEST_CASE("G3's kind: arrays beyond the file are refused by key") {
  const auto array = [](uint32_t element, uint64_t count, const std::string& rest) {
    return GgufBytes().Key("a", 9, Raw(element) + Raw(count) + rest).Build();
  };
  for (const uint64_t count : {uint64_t{1} << 58, uint64_t{1} << 61, uint64_t{1} << 63,
                               std::numeric_limits<uint64_t>::max()}) {
    for (const uint32_t element : {0u, 4u, 6u, 7u, 8u, 10u, 12u}) {
      Refused(array(element, count, "0123456789abcdef"), kShort, {"key a", std::to_string(count)});
    }
  }
  Refused(array(8, 2, GgufString("x") + Raw<uint64_t>(9) + "y"), kShort, {"key a", "element 1"});
  Refused(array(9, 1, Raw<uint32_t>(0) + Raw<uint64_t>(1) + "x"), kInvalid, {"key a", "ARRAY"});
  Refused(array(13, 1, "x"), kInvalid, {"key a", "type 13"});
  Refused(array(0xFFFFFFFF, 0, ""), kInvalid, {"key a", "4294967295"});
}

TEST_CASE("arrays of arrays, however deep, use no stack") {
  std::string raw;
  for (int depth = 0; depth < 100000; ++depth) raw += Raw<uint32_t>(9) + Raw<uint64_t>(1);
  Refused(GgufBytes().Key("deep", 9, raw).Build(), kInvalid, {"key deep", "ARRAY"});
}

TEST_CASE("too many keys or tensors are refused although the file holds them") {
  const std::string filler(3000000, '\0');
  Refused("GGUF" + Raw<uint32_t>(3) + Raw<uint64_t>(0) + Raw<uint64_t>(kMaxGgufKeys + 1) + filler,
          kInvalid, {"metadata count", std::to_string(kMaxGgufKeys)});
  Refused(
      "GGUF" + Raw<uint32_t>(3) + Raw<uint64_t>(kMaxGgufTensors + 1) + Raw<uint64_t>(0) + filler,
      kInvalid, {"tensor count", std::to_string(kMaxGgufTensors)});
}

TEST_CASE("other files, versions and value types are refused") {
  Refused("", kShort, {"magic"});
  Refused("GGU", kShort, {"magic"});
  Refused("GGML" + std::string(64, '\0'), kInvalid, {"not a GGUF file", "GGML"});
  Refused(std::string("\x7f"
                      "ELF",
                      4) +
              std::string(64, '\0'),
          kInvalid, {"\\x7f"});
  for (const uint32_t version : {0u, 1u, 4u, 0xFFFFFFFFu}) {
    Refused(GgufBytes(version).Build(), kUnsupported,
            {"version " + std::to_string(version), "2, 3"});
  }
  Refused(GgufBytes(0x03000000).Build(), kUnsupported, {"big-endian"});
  Refused(GgufBytes().Key("k", 13, Raw<uint64_t>(0)).Build(), kInvalid, {"key k", "type 13"});
  Refused(GgufBytes().Key("k", 7, Raw<uint8_t>(2)).Build(), kInvalid, {"key k", "BOOL", "2"});
}

TEST_CASE("names that occur twice are refused") {
  Refused(GgufBytes().U32("k", 1).U32("k", 1).Build(), kInvalid, {"key k", "twice"});
  Refused(
      GgufBytes().Tensor("t", {8}, 0, 0).Tensor("t", {8}, 0, 32).Data(std::string(64, 'x')).Build(),
      kInvalid, {"tensor t", "twice"});
}

TEST_CASE("hostile names are shown short and escaped") {
  const std::string name = "\x1b[2J\n" + std::string(500, 'n');
  const ParsedGguf parsed(GgufBytes().Tensor(name, {0}, 0, 0).Build());
  REQUIRE_FALSE(parsed.reader.ok());
  CHECK(parsed.message().find('\x1b') == std::string::npos);
  CHECK(parsed.message().find('\n') == std::string::npos);
  CHECK(parsed.message().size() < 300);
}

TEST_CASE("a valid file cut anywhere is refused or still consistent") {
  const std::string file = GgufBytes()
                               .String("general.architecture", "llama")
                               .Strings("tokens", {"a", "bc"})
                               .Array<int32_t>("types", 5, {1, 2, 3})
                               .Tensor("t", {32, 2}, 3, 0)
                               .Tensor("u", {3}, 0, 64)
                               .Data(std::string(64 + 12, 'x'))
                               .Build();
  REQUIRE_OK(ParsedGguf(file).reader);
  for (size_t n = 0; n < file.size(); ++n) Refused(file.substr(0, n), kShort, {});
}

// What the tokenizer has to judge (repeated pieces, ids outside the vocabulary) reaches it
// unchanged.
TEST_CASE("G7: vocabularies with repeated strings and ids out of range are read as they are") {
  const ParsedGguf parsed(GgufBytes()
                              .Strings("tokenizer.ggml.tokens", {"a", "a", "b"})
                              .U32("tokenizer.ggml.eos_token_id", 4294967295u)
                              .Bool("tokenizer.ggml.add_bos_token", true)
                              .Build());
  REQUIRE_OK(parsed.reader);
  const GgufReader& gguf = **parsed.reader;
  const auto tokens = gguf.GetStrings("tokenizer.ggml.tokens");
  REQUIRE_OK(tokens);
  CHECK(tokens->size() == 3);
  CHECK((*tokens)[0] == (*tokens)[1]);
  CHECK(*gguf.GetU32("tokenizer.ggml.eos_token_id") == 4294967295u);
  CHECK(*gguf.GetBool("tokenizer.ggml.add_bos_token"));
  CHECK(gguf.GetU32("tokenizer.ggml.bos_token_id").status().code() == absl::StatusCode::kNotFound);
}
