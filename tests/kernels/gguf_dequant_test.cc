#include "kernels/gguf_dequant.h"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/kernels/gguf_blocks.h"
#include "tests/testing/paths.h"

using namespace sparkv::kernels;
using sparkv::testing::kAllTypes;
using sparkv::testing::RandomRow;

namespace {

struct Golden {
  uint32_t type;
  std::vector<uint8_t> bytes;
  std::vector<float> values;
};

std::vector<Golden> ReadGolden() {
  std::ifstream in(sparkv::testing::SourcePath("tests/golden/dequant/dequant.bin"),
                   std::ios::binary);
  const auto word = [&in] {
    uint32_t value = 0;
    in.read(reinterpret_cast<char*>(&value), sizeof(value));
    return value;
  };
  std::vector<Golden> out;
  char magic[4] = {};
  in.read(magic, sizeof(magic));
  if (std::memcmp(magic, "DQG1", 4) != 0) return out;
  const uint32_t count = word();
  for (uint32_t i = 0; i < count && in; ++i) {
    Golden golden;
    golden.type = word();
    golden.bytes.resize(word());
    golden.values.resize(word());
    in.read(reinterpret_cast<char*>(golden.bytes.data()),
            static_cast<std::streamsize>(golden.bytes.size()));
    in.read(reinterpret_cast<char*>(golden.values.data()),
            static_cast<std::streamsize>(golden.values.size() * 4));
    if (in) out.push_back(std::move(golden));
  }
  return out;
}

using Dequantize = absl::Status (*)(GgmlType, const void*, float*, size_t);

// Equal values; +0 and -0 are the same (a product with a zero scale), and infinities must agree.
void RequireSame(const std::vector<float>& got, const std::vector<float>& want,
                 std::string_view name) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(std::string(name) << " value " << i);
    REQUIRE(got[i] == want[i]);
  }
}

}  // namespace

TEST_CASE("the type table has every supported type once, with the file format's sizes") {
  std::set<uint32_t> seen;
  for (const GgmlType type : kAllTypes) {
    const GgmlTypeInfo* info = FindGgmlType(static_cast<uint32_t>(type));
    REQUIRE(info != nullptr);
    CHECK(info->type == type);
    CHECK(seen.insert(static_cast<uint32_t>(type)).second);
  }
  const GgmlTypeInfo& q4_1 = *FindGgmlType(3);
  CHECK(std::string(q4_1.name) == "Q4_1");
  CHECK(RowBytes(q4_1, 576) == 360);
  CHECK(RowBytes(*FindGgmlType(14), 512) == 420);
  for (const uint32_t unknown : {4u, 5u, 9u, 15u, 29u, 31u, 0xFFFFFFFFu})
    CHECK(FindGgmlType(unknown) == nullptr);
}

// Both twins compute each value with one rounding at most beyond the reference's own products, in
// the reference's order, so the results are equal and no tolerance is needed.
TEST_CASE("blocks of every type expand to the values of the reference dequantizer") {
  const std::vector<Golden> golden = ReadGolden();
  REQUIRE(golden.size() == std::size(kAllTypes));
  for (const Golden& g : golden) {
    const GgmlTypeInfo* info = FindGgmlType(g.type);
    REQUIRE(info != nullptr);
    REQUIRE(RowBytes(*info, g.values.size()) == g.bytes.size());
    for (const Dequantize dequantize :
         {Dequantize{DequantizeRow}, Dequantize{DequantizeRowScalar}}) {
      std::vector<float> got(g.values.size(), -7.0f);
      REQUIRE_OK(dequantize(info->type, g.bytes.data(), got.data(), got.size()));
      RequireSame(got, g.values, info->name);
    }
  }
}

TEST_CASE("SIMD and scalar twins agree to the bit, on unaligned rows of many lengths") {
  std::mt19937 rng(11);
  for (const GgmlType type : kAllTypes) {
    const GgmlTypeInfo& info = *FindGgmlType(static_cast<uint32_t>(type));
    for (const float scale : {1e-7f, 0.02f, 1.0f, 5000.0f}) {
      for (size_t blocks = 1; blocks < (info.block_values == 1 ? 70u : 6u); ++blocks) {
        const size_t n = blocks * info.block_values;
        const std::vector<uint8_t> row = RandomRow(type, n, scale, &rng);
        std::vector<uint8_t> shifted(row.size() + 1);
        std::memcpy(shifted.data() + 1, row.data(), row.size());
        std::vector<float> fast(n + 1, -7.0f), slow(n + 1, -7.0f);
        REQUIRE_OK(DequantizeRow(type, shifted.data() + 1, fast.data(), n));
        REQUIRE_OK(DequantizeRowScalar(type, row.data(), slow.data(), n));
        RequireSame(fast, slow, info.name);
        REQUIRE(fast[n] == -7.0f);  // nothing beyond the row
      }
    }
  }
}

TEST_CASE("ragged rows and unknown types are errors that say what is allowed") {
  const std::vector<uint8_t> bytes(1024);
  std::vector<float> out(512, -7.0f);
  for (const GgmlType type : kAllTypes) {
    const GgmlTypeInfo& info = *FindGgmlType(static_cast<uint32_t>(type));
    CHECK(DequantizeRow(type, bytes.data(), out.data(), 0).ok());
    if (info.block_values == 1) continue;
    for (const size_t n :
         {size_t{1}, size_t{info.block_values} - 1, size_t{info.block_values} + 1}) {
      for (const Dequantize dequantize :
           {Dequantize{DequantizeRow}, Dequantize{DequantizeRowScalar}}) {
        const absl::Status status = dequantize(type, bytes.data(), out.data(), n);
        REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
        const std::string message(status.message());
        CHECK(message.find(std::string(info.name)) != std::string::npos);
        CHECK(message.find(std::to_string(info.block_values)) != std::string::npos);
      }
    }
  }
  CHECK(out == std::vector<float>(512, -7.0f));
  const absl::Status status =
      DequantizeRow(static_cast<GgmlType>(77), bytes.data(), out.data(), 32);
  CHECK(status.code() == absl::StatusCode::kUnimplemented);
  CHECK(std::string(status.message()).find("77") != std::string::npos);
}
