// The golden columns of tests/golden/codec_v1. Those of codecs with a model profile lie in its
// folder `profile`: NAME.prf, and for each of its columns NAME_TOKENS.col and .in, what a decoder
// must have besides: u32 first_token, u32 tokens, u32 d_model, i32 ids[tokens], f32 embeddings
// [tokens][d_model], K and V of layer 0 as f16 [2][kv_heads][tokens][head_dim].
//   codec_golden make DIR            writes them (only when the format gets a new version or a new
//                                    case)
//   codec_golden check DIR           fails unless the encoder makes the bytes that are there
//   codec_golden dump FILE LEVEL     verifies and decodes a column to stdout:
//                                    [layers][2][kv_heads][tokens][head_dim] f16 bits
//   codec_golden dump FILE LEVEL PRF IN    the same of a column that needs a profile, but for each
//                                    layer above 0 the symbols, i16 [2 * row][tokens], then the
//                                    values, f32 [tokens][2 * row]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/codec/dec_aatc.h"
#include "common/codec/enc_aatc.h"
#include "common/codec/enc_codec.h"
#include "common/codec/enc_column.h"
#include "common/codec/enc_planes.h"
#include "common/codec/format.h"
#include "tests/common/codec/codec_testing.h"
#include "tests/testing/tiny_profile.h"

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

struct ProfileCase {
  const char* name;
  testing::TinyProfileOptions options;
};

std::vector<ProfileCase> ProfileCases() {
  std::vector<ProfileCase> cases(3);
  cases[0].name = "pred";
  cases[1].name = "pred_split";  // the block below as it is, not projected
  cases[1].options.rank_below = 64;
  cases[1].options.predict_type = kernels::GgmlType::kQ4_0;
  cases[1].options.rope = RopePairs::kSplitHalf;
  cases[2].name = "plain";  // no prediction; half of each head is not rotated
  cases[2].options.rank_below = cases[2].options.rank_token = 0;
  cases[2].options.pairs = 4;
  for (ProfileCase& c : cases) c.options.model_fingerprint.fill(0xA1);
  return cases;
}

// First token and tokens: the first four tokens are exact in the one, none is in the other.
constexpr uint32_t kProfileColumns[][2] = {{0, 70}, {70, 6}};

struct ProfileColumn {
  std::shared_ptr<const CodecProfile> profile;
  std::unique_ptr<testing::TinyColumn> column;
  std::string base;  // of its files' names
  std::string blob, in;
};

absl::StatusOr<std::string> MakeInput(const testing::TinyColumn& column, uint32_t width) {
  ByteWriter in;
  for (const uint32_t v : {column.first_token, column.shape.tokens, width}) in.Write(v);
  for (const int32_t token : column.tokens) in.Write(token);
  std::vector<float> rows(column.tokens.size() * width);
  RETURN_IF_ERROR(testing::TinyEmbedding(width).rows(column.tokens, rows.data()));
  for (const float v : rows) in.Write(v);
  for (const auto* side : {&column.k[0], &column.v[0]}) {
    for (const uint16_t bits : *side) in.Write(bits);
  }
  return in.Take();
}

absl::StatusOr<ProfileColumn> MakeProfileColumn(const ProfileCase& c, uint32_t first, uint32_t n) {
  ProfileColumn out;
  out.base = std::string(c.name) + "_" + std::to_string(n);
  out.profile = testing::TinyProfile(c.options);
  if (out.profile == nullptr) return absl::InternalError("no profile");
  const KvGeometry& g = c.options.geometry;
  out.column = std::make_unique<testing::TinyColumn>(g, n, first, 200 + n);
  if (n > 60) {  // a token that a symbol cannot name, and one far out that travels as it is
    out.column->v[1][size_t{50} * g.head_dim + 7] = kernels::FloatToHalf(100.0f);
    out.column->v[1][size_t{60} * g.head_dim + 7] = kernels::FloatToHalf(900.0f);
  }
  const TokenEmbedding embedding = testing::TinyEmbedding(c.options.d_model);
  ASSIGN_OR_RETURN(const auto encoder, MakeResidualEncoder(out.profile, embedding));
  ASSIGN_OR_RETURN(const EncodedColumn encoded,
                   encoder->EncodeColumn(out.column->input(), nullptr));
  Digest key;
  key.fill(0xB2);
  ASSIGN_OR_RETURN(ColumnWriter writer,
                   ColumnWriter::Create(g, n, encoder->info(), c.options.model_fingerprint, key,
                                        &out.profile->digest()));
  for (const auto& layer : encoded.planes) RETURN_IF_ERROR(writer.AppendLayer(layer));
  ASSIGN_OR_RETURN(out.blob, writer.Finish());

  ASSIGN_OR_RETURN(out.in, MakeInput(*out.column, c.options.d_model));
  return out;
}

// FORMAT.md's worked example: layer 1 of a model of two, symbols written by hand.
absl::StatusOr<ProfileColumn> MakeProfileExample() {
  testing::TinyProfileOptions options;
  options.geometry = {2, 1, 32, KvDtype::kF16};
  options.rank_below = options.rank_token = 0;
  options.model_fingerprint.fill(0xA1);
  ProfileContent content = testing::TinyProfileContent(options);
  std::fill(content.layers[0].table.begin(), content.layers[0].table.end(), uint8_t{0});
  content.layers[0].table[1] = 60;
  ASSIGN_OR_RETURN(std::string bytes, WriteProfile(content));
  ProfileColumn out;
  out.base = "example";
  ASSIGN_OR_RETURN(out.profile, CodecProfile::Parse(std::move(bytes)));
  QuantizedBlock block;
  block.symbols.resize(64 * 2);
  block.symbols[0] = 5 * 81 + 20;     // 5, 16, 47, 142, 425
  block.symbols[1] = 30;              // 0, 1, 3, 10, 30
  block.symbols[2] = -200 * 81 + 40;  // escaped: -200, -599, -1796, -5387, -16160
  block.symbols[4] = -40;             // 0, -1, -4, -13, -40
  out.column = std::make_unique<testing::TinyColumn>(options.geometry, 2, 4, 300);
  const CodecInfo& info = AatcInfo();
  Digest key;
  key.fill(0xB2);
  ASSIGN_OR_RETURN(ColumnWriter writer,
                   ColumnWriter::Create(options.geometry, 2, info, options.model_fingerprint, key,
                                        &out.profile->digest()));
  RETURN_IF_ERROR(writer.AppendLayer(EmptyPlanes(info)));
  RETURN_IF_ERROR(writer.AppendLayer(WritePlanes(info, *out.profile, 1, 2, block)));
  ASSIGN_OR_RETURN(out.blob, writer.Finish());
  ASSIGN_OR_RETURN(out.in, MakeInput(*out.column, options.d_model));
  return out;
}

std::vector<std::span<const uint8_t>> PlanesOf(const ColumnHeader& h, const std::string& blob,
                                               uint32_t layer, uint32_t planes) {
  std::vector<std::span<const uint8_t>> views;
  for (uint32_t p = 0; p < planes; ++p) {
    const ByteRange r = h.ItemRange(layer, p);
    views.push_back(AsBytes(blob).subspan(r.offset, r.bytes));
  }
  return views;
}

// The column's symbols give the same planes again, and the encoder finds the same. Where a
// coefficient falls is a matter of sums in floating point, so that one in a hundred may be another
// on another machine; what is written from a symbol is not.
absl::Status CheckProfileColumn(const ProfileColumn& made, const std::string& want) {
  RETURN_IF_ERROR(VerifyColumn(AsBytes(want)));
  ASSIGN_OR_RETURN(const ColumnHeader h, ParseColumnHeader(AsBytes(want)));
  const TokenEmbedding embedding = testing::TinyEmbedding(made.profile->shape().d_model);
  ASSIGN_OR_RETURN(const auto decoder, MakeResidualDecoder(made.profile, embedding));
  const Digest digest = CodecDigest(decoder->info(), &made.profile->digest());
  RETURN_IF_ERROR(h.CheckIdentity(made.profile->shape().model_fingerprint, digest, h.column_key));
  ASSIGN_OR_RETURN(const ColumnHeader found, ParseColumnHeader(AsBytes(made.blob)));
  for (uint32_t l = 1; l < h.geometry.layers; ++l) {
    const auto views = PlanesOf(h, want, l, h.planes);
    ASSIGN_OR_RETURN(const BlockResidual block, decoder->Read(l, h.shape(), views));
    ASSIGN_OR_RETURN(const BlockResidual now,
                     decoder->Read(l, found.shape(), PlanesOf(found, made.blob, l, found.planes)));
    size_t other = 0;
    for (size_t i = 0; i < block.symbols.size(); ++i) {
      other += block.symbols[i] != now.symbols[i] ? 1 : 0;
    }
    if (other > block.symbols.size() / 100 || block.exact_tokens != now.exact_tokens ||
        block.exact != now.exact) {
      return absl::DataLossError(made.base + ": the encoder finds other symbols");
    }
    const auto planes = WritePlanes(decoder->info(), *made.profile, l, h.tokens,
                                    {block.exact_tokens, block.exact, block.symbols});
    for (uint32_t p = 0; p < h.planes; ++p) {
      if (planes[p] != AsStringView(views[p])) {
        return absl::DataLossError(made.base + ": other bytes than in version 1");
      }
    }
  }
  return absl::OkStatus();
}

// Makes the files of one column, or checks them.
absl::Status ProfileFiles(const ProfileColumn& made, const std::string& dir,
                          const std::string& name, bool make) {
  const std::string prf = dir + "/profile/" + name + ".prf", base = dir + "/profile/" + made.base;
  if (make) {
    RETURN_IF_ERROR(WriteFileDurably(prf, made.profile->bytes()));
    RETURN_IF_ERROR(WriteFileDurably(base + ".in", made.in));
    RETURN_IF_ERROR(WriteFileDurably(base + ".col", made.blob));
  }
  ASSIGN_OR_RETURN(const std::string profile, ReadFile(prf, 1 << 20));
  ASSIGN_OR_RETURN(const std::string in, ReadFile(base + ".in", 1 << 20));
  ASSIGN_OR_RETURN(const std::string blob, ReadFile(base + ".col", 1 << 20));
  if (profile != made.profile->bytes() || in != made.in) {
    return absl::DataLossError(made.base + ": another profile or other inputs than there are");
  }
  return CheckProfileColumn(made, blob);
}

absl::Status AllProfileFiles(const std::string& dir, bool make) {
  ASSIGN_OR_RETURN(const ProfileColumn example, MakeProfileExample());
  RETURN_IF_ERROR(ProfileFiles(example, dir, example.base, make));
  for (const ProfileCase& c : ProfileCases()) {
    for (const auto& [first, n] : kProfileColumns) {
      ASSIGN_OR_RETURN(const ProfileColumn made, MakeProfileColumn(c, first, n));
      RETURN_IF_ERROR(ProfileFiles(made, dir, c.name, make));
    }
  }
  return absl::OkStatus();
}

absl::Status Make(const std::string& dir) {
  RETURN_IF_ERROR(AllProfileFiles(dir, /*make=*/true));
  for (const GoldenCase& c : kCases) {
    ASSIGN_OR_RETURN(const std::string blob, MakeBlob(c));
    RETURN_IF_ERROR(WriteFileDurably(dir + "/" + c.file, blob));
  }
  return absl::OkStatus();
}

absl::Status Check(const std::string& dir) {
  RETURN_IF_ERROR(AllProfileFiles(dir, /*make=*/false));
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

class DumpSink final : public RowSink {
 public:
  DumpSink(uint32_t tokens, uint32_t row) : row_(row), values_(size_t{tokens} * 2 * row) {}
  void Write(uint32_t row, uint32_t n, const float* k, const float* v, size_t stride) override {
    for (uint32_t i = 0; i < n; ++i) {
      float* out = &values_[size_t{row + i} * 2 * row_];
      std::copy_n(k + i * stride, row_, out);
      std::copy_n(v + i * stride, row_, out + row_);
    }
  }
  const std::vector<float>& values() const { return values_; }

 private:
  const uint32_t row_;
  std::vector<float> values_;
};

absl::Status DumpProfile(const std::string& file, int level, const std::string& prf,
                         const std::string& in_file) {
  ASSIGN_OR_RETURN(const std::string blob, ReadFile(file, 1 << 20));
  ASSIGN_OR_RETURN(std::string bytes, ReadFile(prf, 1 << 20));
  ASSIGN_OR_RETURN(const std::string in, ReadFile(in_file, 1 << 20));
  RETURN_IF_ERROR(VerifyColumn(AsBytes(blob)));
  ASSIGN_OR_RETURN(const ColumnHeader h, ParseColumnHeader(AsBytes(blob)));
  ASSIGN_OR_RETURN(const auto profile, CodecProfile::Parse(std::move(bytes)));
  const uint32_t n = h.tokens, row = h.geometry.row(), dim = h.geometry.head_dim;
  const uint32_t width = profile->shape().d_model;
  ByteReader reader(AsBytes(in));
  ASSIGN_OR_RETURN(const uint32_t first, reader.Read<uint32_t>("input"));
  RETURN_IF_ERROR(reader.ReadBytes(8, "input").status());
  ASSIGN_OR_RETURN(const auto raw_ids, reader.ReadBytes(uint64_t{4} * n, "input"));
  ASSIGN_OR_RETURN(const auto raw_rows, reader.ReadBytes(uint64_t{4} * n * width, "input"));
  ASSIGN_OR_RETURN(const auto raw_below, reader.ReadBytes(uint64_t{4} * n * row, "input"));
  std::vector<int32_t> ids(n);
  std::memcpy(ids.data(), raw_ids.data(), raw_ids.size());
  std::vector<uint16_t> below(size_t{2} * n * row);
  std::memcpy(below.data(), raw_below.data(), raw_below.size());
  const TokenEmbedding embedding{
      .width = width, .rows = [&](std::span<const int32_t> tokens, float* out) {
        for (const int32_t id : tokens) {  // the file has a row for each token of the column
          const auto at = static_cast<size_t>(std::find(ids.begin(), ids.end(), id) - ids.begin());
          if (at == n) return absl::InvalidArgumentError("a token that the column does not have");
          std::memcpy(out, raw_rows.data() + at * width * 4, size_t{width} * 4);
          out += width;
        }
        return absl::OkStatus();
      }};
  ASSIGN_OR_RETURN(const auto decoder, MakeResidualDecoder(profile, embedding));
  ASSIGN_OR_RETURN(const int planes, decoder->info().PlanesForLevel(level));
  ASSIGN_OR_RETURN(const auto chain, decoder->Begin(first, ids));
  std::vector<float> rows(size_t{2} * n * row);
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t head = 0; head < 2 * h.geometry.kv_heads; ++head) {
      kernels::HalfToFloat(&below[(size_t{head} * n + i) * dim],
                           &rows[size_t{i} * 2 * row + size_t{head} * dim], dim);
    }
  }
  decoder->Restart(chain.get(), 0, n, rows.data(), rows.data() + row, 2 * row);
  for (uint32_t l = 0; l < h.geometry.layers; ++l) {
    ASSIGN_OR_RETURN(
        const BlockResidual block,
        decoder->Read(l, h.shape(), PlanesOf(h, blob, l, static_cast<uint32_t>(planes))));
    if (l == 0) continue;
    DumpSink sink(n, row);
    RETURN_IF_ERROR(decoder->Finish(block, l, 0, n, chain.get(), &sink));
    std::fwrite(block.symbols.data(), 2, block.symbols.size(), stdout);
    std::fwrite(sink.values().data(), 4, sink.values().size(), stdout);
  }
  return absl::OkStatus();
}

absl::Status Run(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "make" && argc == 3) return Make(argv[2]);
  if (word == "check" && argc == 3) return Check(argv[2]);
  if (word == "dump" && argc == 4) return Dump(argv[2], std::atoi(argv[3]));
  if (word == "dump" && argc == 6) {
    return DumpProfile(argv[2], std::atoi(argv[3]), argv[4], argv[5]);
  }
  return absl::InvalidArgumentError(
      "usage: codec_golden make DIR | check DIR | dump FILE LEVEL [PROFILE INPUT]");
}

}  // namespace
}  // namespace sparkv

int main(int argc, char** argv) {
  const absl::Status status = sparkv::Run(argc, argv);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
