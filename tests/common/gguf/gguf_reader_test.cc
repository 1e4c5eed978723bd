#include "common/gguf/gguf_reader.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/common/gguf/gguf_bytes.h"

using namespace sparkv;
using sparkv::testing::GgufBytes;
using sparkv::testing::ParsedGguf;
using sparkv::testing::Raw;

namespace {

GgufBytes Small(uint32_t version) {
  GgufBytes file(version);
  file.String("general.architecture", "llama")
      .U32("llama.block_count", 30)
      .F32("llama.rope.freq_base", 1e5f)
      .Bool("tokenizer.ggml.add_bos_token", true)
      .Strings("tokenizer.ggml.tokens", {"a", "", std::string("b\0c", 3)})
      .Array<int32_t>("tokenizer.ggml.token_type", 5, {1, 3, -1})
      .Array<float>("scores", 6, {0.5f, -2.0f})
      .Key("u8", 0, Raw<uint8_t>(200))
      .Key("i8", 1, Raw<int8_t>(-100))
      .Key("u16", 2, Raw<uint16_t>(60000))
      .Key("i16", 3, Raw<int16_t>(-30000))
      .Key("i32", 5, Raw<int32_t>(-5))
      .Key("u64", 10, Raw<uint64_t>(std::numeric_limits<uint64_t>::max()))
      .Key("i64", 11, Raw<int64_t>(std::numeric_limits<int64_t>::min()))
      .Key("f64", 12, Raw<double>(0.1))
      .Tensor("f", {3, 2}, 0, 0)
      .Tensor("q", {64, 2}, 3, 32)
      .Data(std::string(32 + 80, '\x11'));
  return file;
}

void RequireError(const absl::Status& status, absl::StatusCode code,
                  const std::vector<std::string>& parts) {
  INFO(status.ToString());
  REQUIRE(status.code() == code);
  for (const std::string& part : parts)
    REQUIRE(std::string(status.message()).find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("versions 2 and 3 give typed metadata and a tensor table") {
  for (const uint32_t version : {2u, 3u}) {
    const ParsedGguf file(Small(version).Build());
    REQUIRE_OK(file.reader);
    const GgufReader& gguf = **file.reader;
    CHECK(gguf.version() == version);
    CHECK(gguf.metadata().size() == 15);
    CHECK(gguf.metadata()[0].first == std::string("general.architecture"));
    CHECK(*gguf.GetString("general.architecture") == std::string("llama"));
    CHECK(*gguf.GetU32("llama.block_count") == 30);
    CHECK(*gguf.GetDouble("llama.rope.freq_base") == 1e5);
    CHECK(*gguf.GetBool("tokenizer.ggml.add_bos_token"));
    const auto tokens = gguf.GetStrings("tokenizer.ggml.tokens");
    REQUIRE_OK(tokens);
    REQUIRE(tokens->size() == 3);
    CHECK((*tokens)[1].empty());
    CHECK((*tokens)[2] == std::string("b\0c", 3));
    CHECK(*gguf.GetInts("tokenizer.ggml.token_type") == std::vector<int64_t>{1, 3, -1});
    CHECK(*gguf.GetDoubles("scores") == std::vector<double>{0.5, -2.0});

    REQUIRE(gguf.tensors().size() == 2);
    const GgufTensor* q = gguf.FindTensor("q");
    REQUIRE(q != nullptr);
    CHECK(q->type == kernels::GgmlType::kQ4_1);
    CHECK(q->n_dims == 2);
    CHECK(q->row() == 64);
    CHECK(q->rows() == 2);
    CHECK(q->data.size() == 80);
    CHECK(q->data.data() == gguf.bytes().data() + q->offset);
    CHECK(q->offset % 32 == 0);
    CHECK(gguf.FindTensor("f")->data.size() == 24);
    CHECK(gguf.FindTensor("absent") == nullptr);
  }
}

TEST_CASE("integers of any width fit or say why not") {
  const ParsedGguf file(Small(3).Build());
  REQUIRE_OK(file.reader);
  const GgufReader& gguf = **file.reader;
  CHECK(*gguf.GetU32("u8") == 200);
  CHECK(*gguf.GetU32("u16") == 60000);
  CHECK(*gguf.GetU64("u64") == std::numeric_limits<uint64_t>::max());
  CHECK(*gguf.Find("i8")->AsInt() == -100);
  CHECK(*gguf.Find("i16")->AsInt() == -30000);
  CHECK(*gguf.Find("i64")->AsInt() == std::numeric_limits<int64_t>::min());
  CHECK(*gguf.GetDouble("i64") == -std::pow(2.0, 63));
  CHECK(*gguf.GetDouble("u64") == std::pow(2.0, 64));
  CHECK(*gguf.GetDouble("f64") == 0.1);
  RequireError(gguf.GetU32("u64").status(), absl::StatusCode::kInvalidArgument,
               {"u64", "18446744073709551615", "4294967295"});
  RequireError(gguf.GetU32("i32").status(), absl::StatusCode::kInvalidArgument,
               {"i32", "-5", "0 or more"});
  RequireError(gguf.GetU64("i64").status(), absl::StatusCode::kInvalidArgument,
               {"i64", "-9223372036854775808"});
  RequireError(gguf.Find("u64")->AsInt().status(), absl::StatusCode::kInvalidArgument,
               {"18446744073709551615"});
}

TEST_CASE(
    "a missing key and a value of another type are told apart, defaults cover only the first") {
  const ParsedGguf file(Small(3).Build());
  REQUIRE_OK(file.reader);
  const GgufReader& gguf = **file.reader;
  RequireError(gguf.GetU32("nope").status(), absl::StatusCode::kNotFound, {"nope", "missing"});
  RequireError(gguf.GetU32("general.architecture").status(), absl::StatusCode::kInvalidArgument,
               {"general.architecture", "STRING", "an integer"});
  RequireError(gguf.GetString("llama.block_count").status(), absl::StatusCode::kInvalidArgument,
               {"llama.block_count", "UINT32", "STRING"});
  RequireError(gguf.GetBool("llama.block_count").status(), absl::StatusCode::kInvalidArgument,
               {"UINT32", "BOOL"});
  RequireError(gguf.GetU32("tokenizer.ggml.add_bos_token").status(),
               absl::StatusCode::kInvalidArgument, {"BOOL"});
  RequireError(gguf.GetStrings("scores").status(), absl::StatusCode::kInvalidArgument,
               {"scores", "ARRAY of 2 FLOAT32", "ARRAY of STRING"});
  RequireError(gguf.GetInts("scores").status(), absl::StatusCode::kInvalidArgument, {"FLOAT32"});
  RequireError(gguf.GetDoubles("tokenizer.ggml.tokens").status(),
               absl::StatusCode::kInvalidArgument, {"STRING"});
  CHECK(*gguf.GetU32Or("nope", 7) == 7);
  CHECK(*gguf.GetU32Or("llama.block_count", 7) == 30);
  CHECK(*gguf.GetStringOr("nope", "x") == std::string("x"));
  CHECK(*gguf.GetBoolOr("nope", true));
  CHECK(*gguf.GetDoubleOr("nope", 2.5) == 2.5);
  CHECK_FALSE(gguf.GetU32Or("general.architecture", 7).ok());
  CHECK_FALSE(gguf.GetBoolOr("general.architecture", true).ok());
}

TEST_CASE("the alignment moves the data section") {
  for (const uint32_t alignment : {1u, 8u, 64u, 4096u}) {
    GgufBytes file;
    file.U32("general.alignment", alignment).Tensor("t", {4}, 0, 0).Data("0123456789abcdef");
    const ParsedGguf parsed(file.Build(alignment));
    REQUIRE_OK(parsed.reader);
    const GgufTensor* tensor = (*parsed.reader)->FindTensor("t");
    CHECK(tensor->offset % alignment == 0);
    CHECK(AsStringView(tensor->data) == std::string("0123456789abcdef"));
  }
}

TEST_CASE("files are mapped, and errors carry their path") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("gguf_reader_test." + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "m.gguf").string();
  std::ofstream(path, std::ios::binary) << Small(3).Build();
  {
    const auto reader = GgufReader::Open(path);
    REQUIRE_OK(reader);
    CHECK(*(*reader)->GetU32("llama.block_count") == 30);
  }
  std::ofstream(path, std::ios::binary | std::ios::trunc) << Small(3).Build().substr(0, 60);
  RequireError(GgufReader::Open(path).status(), absl::StatusCode::kDataLoss, {path});
  std::ofstream(path, std::ios::binary | std::ios::trunc) << "";
  RequireError(GgufReader::Open(path).status(), absl::StatusCode::kDataLoss, {path, "magic"});
  RequireError(GgufReader::Open(path + ".absent").status(), absl::StatusCode::kNotFound, {path});
  std::filesystem::remove_all(folder);
}
