// The golden columns of tests/golden/codec_v1.
//   codec_golden make DIR            writes them (only when the format gets a new version or a new
//   case) codec_golden check DIR           fails unless the encoder makes the bytes that are there
//   codec_golden dump FILE LEVEL     verifies and decodes a column to stdout:
//   [layers][2][kv_heads][tokens][head_dim] f16 bits
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/codec/enc_codec.h"
#include "common/codec/enc_column.h"
#include "common/codec/format.h"
#include "tests/common/codec/codec_testing.h"

namespace sparkv {
namespace {

struct GoldenCase {
  const char* file;
  const char* codec;
  KvGeometry geometry;
  uint32_t tokens;
};
const GoldenCase kCases[] = {
    {"generic.col", "generic", {2, 2, 16, KvDtype::kF16}, 70},
    {"generic_wide.col",
     "generic",
     {1, 1, 20, KvDtype::kF16},
     300},  // tails in lanes, tiles and bits
    {"generic_3_tokens.col", "generic", {2, 1, 16, KvDtype::kF16}, 3},  // all exact
    {"example.col", "generic", {1, 1, 2, KvDtype::kF16}, 6},  // FORMAT.md's worked example
    {"f16.col", "f16", {2, 2, 16, KvDtype::kF16}, 70},
    // Three layers: each has other bits or bins.
    {"sparkv_paper.col", "sparkv-paper", {3, 2, 8, KvDtype::kF16}, 70},
    {"sparkv_paper_1_token.col", "sparkv-paper", {1, 1, 3, KvDtype::kF16}, 1},
    {"cachegen.col", "cachegen", {3, 2, 12, KvDtype::kF16}, 90},  // more than one run in REFINE
    {"cachegen_1_token.col", "cachegen", {1, 1, 3, KvDtype::kF16}, 1},
    {"kivi.col", "kivi", {1, 2, 20, KvDtype::kF16}, 70},
    {"kivi_wide.col", "kivi", {1, 1, 70, KvDtype::kF16}, 33},  // V rows of two groups
};

testing::Block MakeBlock(const GoldenCase& c, uint32_t layer) {
  testing::Block b =
      testing::RandomBlock({c.geometry.kv_heads, c.tokens, c.geometry.head_dim}, 100 + layer);
  if (c.tokens < 64) return b;
  b.k[b.At(0, 40, 3)] = kernels::FloatToHalf(-65504.0f);  // outliers
  b.v[b.At(0, 50, 7)] = kernels::FloatToHalf(900.0f);
  for (uint32_t t = 0; t < c.tokens; ++t) b.k[b.At(0, t, 5)] = kernels::FloatToHalf(600.0f);
  if (std::string_view(c.codec) == "f16") {
    b.k[0] = 0x7C01;  // a signalling NaN
    b.v[1] = 0xFC00;
  }
  return b;
}

absl::StatusOr<std::string> MakeBlob(const GoldenCase& c) {
  Digest model, key;
  model.fill(0xA1);
  key.fill(0xB2);
  ASSIGN_OR_RETURN(const BlockEncoder* encoder, FindEncoder(c.codec));
  ASSIGN_OR_RETURN(ColumnWriter writer,
                   ColumnWriter::Create(c.geometry, c.tokens, encoder->info(), model, key));
  for (uint32_t l = 0; l < c.geometry.layers; ++l) {
    const testing::Block b = MakeBlock(c, l);
    ASSIGN_OR_RETURN(const auto planes,
                     encoder->EncodeBlock(b.input({.layer = l, .layers = c.geometry.layers})));
    const std::vector<uint16_t> active(c.geometry.kv_heads, static_cast<uint16_t>(l + 1));
    RETURN_IF_ERROR(writer.AppendLayer(planes, active));
  }
  return writer.Finish();
}

absl::Status Make(const std::string& dir) {
  for (const GoldenCase& c : kCases) {
    ASSIGN_OR_RETURN(const std::string blob, MakeBlob(c));
    RETURN_IF_ERROR(WriteFileDurably(dir + "/" + c.file, blob));
  }
  return absl::OkStatus();
}

absl::Status Check(const std::string& dir) {
  for (const GoldenCase& c : kCases) {
    ASSIGN_OR_RETURN(const std::string blob, MakeBlob(c));
    ASSIGN_OR_RETURN(const std::string want, ReadFile(dir + "/" + c.file, 1 << 20));
    RETURN_IF_ERROR(VerifyColumn(AsBytes(want)));
    if (blob != want) {
      return absl::DataLossError(std::string(c.file) +
                                 ": the encoder makes other bytes than it did for version 1");
    }
  }
  return absl::OkStatus();
}

absl::Status Dump(const std::string& file, int level) {
  ASSIGN_OR_RETURN(const std::string blob, ReadFile(file, 1 << 20));
  RETURN_IF_ERROR(VerifyColumn(AsBytes(blob)));
  ASSIGN_OR_RETURN(const ColumnHeader h, ParseColumnHeader(AsBytes(blob)));
  ASSIGN_OR_RETURN(const BlockDecoder* decoder, FindDecoder(h.codec_id, h.codec_version));
  ASSIGN_OR_RETURN(const int planes, decoder->info().PlanesForLevel(level));
  std::vector<uint16_t> k(h.shape().elements()), v(h.shape().elements());
  for (uint32_t l = 0; l < h.geometry.layers; ++l) {
    std::vector<std::span<const uint8_t>> views;
    for (int p = 0; p < planes; ++p) {
      const ByteRange r = h.ItemRange(l, static_cast<uint32_t>(p));
      views.push_back(AsBytes(blob).subspan(r.offset, r.bytes));
    }
    RETURN_IF_ERROR(decoder->DecodeBlock(h.shape(), views, k.data(), v.data()));
    std::fwrite(k.data(), 2, k.size(), stdout);
    std::fwrite(v.data(), 2, v.size(), stdout);
  }
  return absl::OkStatus();
}

absl::Status Run(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "make" && argc == 3) return Make(argv[2]);
  if (word == "check" && argc == 3) return Check(argv[2]);
  if (word == "dump" && argc == 4) return Dump(argv[2], std::atoi(argv[3]));
  return absl::InvalidArgumentError("usage: codec_golden make DIR | check DIR | dump FILE LEVEL");
}

}  // namespace
}  // namespace sparkv

int main(int argc, char** argv) {
  const absl::Status status = sparkv::Run(argc, argv);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
