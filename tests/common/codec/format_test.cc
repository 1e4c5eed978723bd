#include "common/codec/format.h"

#include <cstring>

#include "common/base/bytes.h"
#include "common/base/crc32c.h"
#include "common/codec/enc_codec.h"
#include "common/codec/enc_column.h"
#include "tests/catch.h"
#include "tests/common/codec/codec_testing.h"

namespace sparkv {
namespace {

using testing::RandomBlock;

Digest Filled(uint8_t value) {
  Digest d;
  d.fill(value);
  return d;
}
const Digest kModel = Filled(0x11);
const Digest kKey = Filled(0x22);

std::string MakeBlob(const KvGeometry& g, uint32_t tokens, std::string_view codec) {
  const BlockEncoder* encoder = *FindEncoder(codec);
  auto writer = ColumnWriter::Create(g, tokens, encoder->info(), kModel, kKey);
  REQUIRE_OK(writer);
  for (uint32_t l = 0; l < g.layers; ++l) {
    const testing::Block b = RandomBlock({g.kv_heads, tokens, g.head_dim}, l);
    auto planes = encoder->EncodeBlock(b.input());
    REQUIRE_OK(planes);
    std::vector<uint16_t> active(g.kv_heads);
    for (uint32_t h = 0; h < g.kv_heads; ++h) active[h] = static_cast<uint16_t>(10 * l + h);
    REQUIRE_OK(writer->AppendLayer(*planes, l == 1 ? std::span<const uint16_t>() : active));
  }
  auto blob = writer->Finish();
  REQUIRE_OK(blob);
  return *std::move(blob);
}

template <typename T>
void Poke(std::string* blob, size_t offset, T value) {
  std::memcpy(blob->data() + offset, &value, sizeof(T));
}

// Makes the header's CRC right again, so that what is tested is the check behind it.
void FixCrc(std::string* blob) {
  uint32_t header_bytes;
  std::memcpy(&header_bytes, blob->data() + 12, 4);
  Poke(blob, header_bytes - 4, Crc32c(AsBytes(*blob).first(header_bytes - 4)));
}

}  // namespace

TEST_CASE("A column's header says what was written and where each item is") {
  const KvGeometry g{3, 2, 16, KvDtype::kF16};
  for (const char* codec : {"generic", "f16"}) {
    const std::string blob = MakeBlob(g, 70, codec);
    const auto bytes = AsBytes(blob);
    const CodecInfo& info = (*FindDecoder(codec))->info();
    REQUIRE(*ColumnHeaderBytes(bytes.first(kColumnPreludeBytes)) ==
            144u + 8 * 3 * info.planes + 2 * 3 * 2 + 4);
    const uint64_t header_bytes = *ColumnHeaderBytes(bytes);
    const auto h = ParseColumnHeader(bytes.first(header_bytes));
    REQUIRE_OK(h);
    CHECK(h->geometry == g);
    CHECK(h->tokens == 70);
    CHECK(h->codec_id == info.id);
    CHECK(h->codec_version == info.version);
    CHECK(h->planes == static_cast<uint32_t>(info.planes));
    CHECK(h->file_bytes == blob.size());
    CHECK(h->active_blocks == std::vector<uint16_t>{0, 1, 0, 0, 20, 21});
    REQUIRE_OK(h->CheckIdentity(kModel, CodecDigest(info), kKey));
    uint64_t offset = header_bytes;
    for (uint32_t l = 0; l < 3; ++l) {
      CHECK(h->LayersRange(l, l + 1).offset == offset);
      for (uint32_t p = 0; p < h->planes; ++p) {
        const ByteRange r = h->ItemRange(l, p);
        CHECK(r.offset == offset);
        offset += r.bytes;
        REQUIRE_OK(h->VerifyItem(l, p, bytes.subspan(r.offset, r.bytes)));
      }
      CHECK(h->LayersRange(0, l + 1).bytes == offset - header_bytes);
    }
    CHECK(offset == blob.size());
    REQUIRE_OK(VerifyColumn(bytes));
  }
}

TEST_CASE("A column says whether its predictions need a streamed base") {
  const KvGeometry g{1, 1, 8, KvDtype::kF16};
  for (const bool needs : {false, true}) {
    auto writer = ColumnWriter::Create(g, 4, (*FindEncoder("f16"))->info(), kModel, kKey);
    REQUIRE_OK(writer);
    const std::string plane = "plane";
    REQUIRE_OK(writer->AppendLayer(std::span(&plane, 1)));
    if (needs) writer->NeedsStreamedBase();
    auto blob = writer->Finish();
    REQUIRE_OK(blob);
    CHECK(static_cast<uint8_t>((*blob)[10]) == (needs ? 1 : 0));
    const auto header = ParseColumnHeader(AsBytes(*blob));
    REQUIRE_OK(header);
    CHECK(header->needs_streamed_base == needs);
    Poke<uint16_t>(&*blob, 10, 2);
    FixCrc(&*blob);
    CHECK(absl::IsDataLoss(ParseColumnHeader(AsBytes(*blob)).status()));
  }
}

TEST_CASE("One flipped bit anywhere in a column is found") {
  std::string blob = MakeBlob({2, 1, 8, KvDtype::kF16}, 9, "generic");
  REQUIRE(blob.size() < 4000);
  for (size_t i = 0; i < blob.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      blob[i] = static_cast<char>(blob[i] ^ (1 << bit));
      REQUIRE(!VerifyColumn(AsBytes(blob)).ok());
      blob[i] = static_cast<char>(blob[i] ^ (1 << bit));
    }
  }
  REQUIRE_OK(VerifyColumn(AsBytes(blob)));
}

TEST_CASE("A column cut at any length, or with bytes behind it, is refused") {
  const std::string blob = MakeBlob({2, 2, 8, KvDtype::kF16}, 20, "f16");
  const uint64_t header_bytes = *ColumnHeaderBytes(AsBytes(blob));
  for (size_t n = 0; n < blob.size(); ++n) {
    const std::string cut(blob, 0, n);
    CHECK(VerifyColumn(AsBytes(cut)).code() == absl::StatusCode::kDataLoss);
    const auto h = ParseColumnHeader(AsBytes(cut));
    CHECK(h.ok() == (n >= header_bytes));
    if (n >= kColumnPreludeBytes && n < header_bytes) {
      CHECK(h.status().message().find(std::to_string(header_bytes)) != absl::string_view::npos);
    }
  }
  CHECK(VerifyColumn(AsBytes(blob + "x")).code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("Items in each other's place are refused") {
  const std::string blob = MakeBlob({2, 1, 8, KvDtype::kF16}, 30, "generic");
  const auto bytes = AsBytes(blob);
  const ColumnHeader h = *ParseColumnHeader(bytes);
  const auto item = [&](uint32_t l, uint32_t p) {
    const ByteRange r = h.ItemRange(l, p);
    return bytes.subspan(r.offset, r.bytes);
  };
  for (uint32_t p = 0; p < 3; ++p) {
    CHECK(h.VerifyItem(0, p, item(1, p)).code() == absl::StatusCode::kDataLoss);
    CHECK(h.VerifyItem(1, p, item(1, (p + 1) % 3)).code() == absl::StatusCode::kDataLoss);
  }
  CHECK(h.VerifyItem(2, 0, item(0, 0)).code() == absl::StatusCode::kInvalidArgument);
  CHECK(h.VerifyItem(0, 3, item(0, 0)).code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Another model, codec or key is refused, each with its own code") {
  const std::string blob = MakeBlob({1, 1, 8, KvDtype::kF16}, 5, "generic");
  const ColumnHeader h = *ParseColumnHeader(AsBytes(blob));
  const Digest codec = CodecDigest((*FindDecoder("generic"))->info());
  const Digest f16 = CodecDigest((*FindDecoder("f16"))->info());
  CHECK(h.CheckIdentity(kKey, codec, kKey).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(h.CheckIdentity(kModel, f16, kKey).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(h.CheckIdentity(kModel, codec, kModel).code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("A newer version is refused as not supported, not as damaged") {
  std::string blob = MakeBlob({1, 1, 8, KvDtype::kF16}, 5, "generic");
  Poke<uint16_t>(&blob, 8, 2);
  const absl::Status s = ParseColumnHeader(AsBytes(blob)).status();
  CHECK(s.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(s.message().find("version 2 is not supported; supported: 1") != absl::string_view::npos);
  // A newer file may be laid out in another way behind byte 16: these bytes alone must suffice.
  CHECK(ColumnHeaderBytes(AsBytes(blob).first(16)).status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("Limits are checked before anything is allocated, CRC right or not") {
  const std::string good = MakeBlob({1, 1, 8, KvDtype::kF16}, 5, "generic");
  const auto refuse = [&](auto change) {
    std::string blob = good;
    change(&blob);
    CHECK(ColumnHeaderBytes(AsBytes(blob)).status().code() == absl::StatusCode::kDataLoss);
    CHECK(ParseColumnHeader(AsBytes(blob)).status().code() == absl::StatusCode::kDataLoss);
  };
  for (uint32_t bad : {0u, 1025u, 0x80000000u, 0xFFFFFFFFu}) {
    for (size_t offset : {24, 28, 32, 36}) {
      refuse([&](std::string* b) { Poke(b, offset, bad); });
    }
    refuse([&](std::string* b) { Poke(b, 12, bad); });  // header_bytes
  }
  refuse([&](std::string* b) { Poke<uint8_t>(b, 22, 0); });  // planes
  refuse([&](std::string* b) { Poke<uint8_t>(b, 22, 17); });
  refuse([&](std::string* b) { Poke<uint8_t>(b, 23, 2); });   // element type
  refuse([&](std::string* b) { Poke<uint16_t>(b, 10, 2); });  // reserved
  refuse([&](std::string* b) { Poke<char>(b, 0, 'x'); });
  refuse([&](std::string* b) {  // each within its limit, the product not
    for (size_t offset : {28, 32, 36}) Poke<uint32_t>(b, offset, 1024);
  });
}

TEST_CASE("Sizes in the index are checked even when the CRC is right") {
  const std::string good = MakeBlob({1, 1, 8, KvDtype::kF16}, 5, "generic");
  for (uint32_t bad : {0u, 1u, kMaxItemBytes + 1, 0xFFFFFFFFu}) {
    std::string blob = good;
    Poke(&blob, 144, bad);
    FixCrc(&blob);
    CHECK(ParseColumnHeader(AsBytes(blob)).status().code() == absl::StatusCode::kDataLoss);
  }
  std::string blob = good;
  Poke<uint64_t>(&blob, 136, good.size() + 1);
  FixCrc(&blob);
  CHECK(ParseColumnHeader(AsBytes(blob)).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("ColumnWriter refuses what the format can't hold") {
  const CodecInfo& info = (*FindDecoder("generic"))->info();
  const auto create = [&](const KvGeometry& g, uint32_t tokens) {
    return ColumnWriter::Create(g, tokens, info, kModel, kKey).status().code();
  };
  CHECK(create({1, 1, 8, KvDtype::kF16}, 0) == absl::StatusCode::kInvalidArgument);
  CHECK(create({1, 1, 8, KvDtype::kF16}, 1025) == absl::StatusCode::kInvalidArgument);
  CHECK(create({0, 1, 8, KvDtype::kF16}, 5) == absl::StatusCode::kInvalidArgument);
  CHECK(create({1, 1, 8, KvDtype::kF32}, 5) == absl::StatusCode::kInvalidArgument);

  ColumnWriter writer = *ColumnWriter::Create({2, 2, 8, KvDtype::kF16}, 5, info, kModel, kKey);
  const std::vector<std::string> planes = {"a", "b", "c"};
  const std::vector<uint16_t> one_head = {1};
  CHECK(writer.AppendLayer(std::span(planes).first(2)).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(writer.AppendLayer(planes, one_head).code() == absl::StatusCode::kInvalidArgument);
  CHECK(writer.AppendLayer(std::vector<std::string>{"a", "", "c"}).code() ==
        absl::StatusCode::kInvalidArgument);
  REQUIRE_OK(writer.AppendLayer(planes));
  CHECK(writer.Finish().status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE_OK(writer.AppendLayer(planes));
  CHECK(writer.AppendLayer(planes).code() == absl::StatusCode::kInvalidArgument);
  const auto blob = writer.Finish();
  REQUIRE_OK(blob);
  REQUIRE_OK(VerifyColumn(AsBytes(*blob)));
}

}  // namespace sparkv
