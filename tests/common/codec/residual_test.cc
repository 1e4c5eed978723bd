// The codecs with a model profile: encoder and decoder against each other. Against the format:
// tests/oracle.
#include "common/codec/residual.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/crc32c.h"
#include "common/codec/bit_io.h"
#include "common/codec/column_decode.h"
#include "common/codec/dec_aatc.h"
#include "common/codec/dec_planes.h"
#include "common/codec/enc_aatc.h"
#include "common/codec/enc_column.h"
#include "common/codec/format.h"
#include "common/codec/residual_common.h"
#include "common/kv/kv_cache.h"
#include "kernels/gguf_dequant.h"
#include "tests/catch.h"
#include "tests/common/codec/codec_testing.h"
#include "tests/testing/count_allocations.h"
#include "tests/testing/tiny_profile.h"

namespace sparkv {
namespace {

using testing::TinyColumn;
using testing::TinyEmbedding;
using testing::TinyProfile;
using testing::TinyProfileOptions;
using Planes = std::vector<std::vector<std::string>>;

// Two tests of the same case need not encode twice.
struct Coded {
  TinyProfileOptions options;
  std::shared_ptr<const CodecProfile> profile;
  std::unique_ptr<ColumnEncoder> encoder;
  std::unique_ptr<ResidualDecoder> decoder;
  explicit Coded(const TinyProfileOptions& o) : options(o), profile(TinyProfile(o)) {
    REQUIRE(profile != nullptr);
    auto e = MakeResidualEncoder(profile, TinyEmbedding(o.d_model));
    REQUIRE_OK(e);
    encoder = *std::move(e);
    auto d = MakeResidualDecoder(profile, TinyEmbedding(o.d_model));
    REQUIRE_OK(d);
    decoder = *std::move(d);
  }
  Planes Encode(const TinyColumn& c, ThreadPool* pool = nullptr) const {
    auto encoded = encoder->EncodeColumn(c.input(), pool);
    REQUIRE_OK(encoded);
    return std::move(encoded->planes);
  }
};

std::vector<std::vector<std::span<const uint8_t>>> Level(const Planes& planes, size_t level) {
  std::vector<std::vector<std::span<const uint8_t>>> out;
  for (const auto& layer : planes) out.push_back(testing::Views(layer, level));
  return out;
}

// A cache whose layer 0 is the column's.
KvCache CacheFor(const TinyColumn& c, KvGeometry g, uint32_t extra = 0) {
  g.dtype = KvDtype::kF32;  // no second rounding in the comparison
  auto pool = KvPagePool::Create(g, uint64_t{1} << 28);
  REQUIRE_OK(pool);
  KvCache cache(*pool);
  REQUIRE_OK(cache.Extend(c.first_token + c.shape.tokens + extra));
  cache.ImportBlock(0, c.first_token, c.shape.tokens, c.k[0].data(), c.v[0].data());
  return cache;
}

// [kv_heads][tokens][head_dim] of one side of one layer.
std::vector<float> Rows(const KvCache& cache, const TinyColumn& c, uint32_t layer, KvSide side) {
  std::vector<float> out(c.shape.elements());
  cache.ReadRows(layer, side, c.first_token, c.shape.tokens, out.data(),
                 size_t{c.shape.tokens} * c.shape.head_dim);
  return out;
}

std::vector<float> Floats(const std::vector<uint16_t>& halves) {
  std::vector<float> out(halves.size());
  kernels::HalfToFloat(halves.data(), out.data(), out.size());
  return out;
}

// Largest sum of magnitudes in a row of a layer's inverse transforms: how much half a step of every
// symbol can move a value.
double InverseNorm(const CodecProfile& p, uint32_t layer) {
  double norm = 0;
  const uint32_t n = p.shape().group;
  std::vector<float> row(n);
  for (const ProfileMatrix& m : p.layer(layer).inverse) {
    for (uint32_t r = 0; r < n; ++r) {
      REQUIRE_OK(kernels::DequantizeRow(m.type, m.data + size_t{r} * (n / 32) * 34, row.data(), n));
      double sum = 0;
      for (const float v : row) sum += std::abs(v);
      norm = std::max(norm, sum);
    }
  }
  return norm;
}

std::vector<TinyProfileOptions> Cases() {
  std::vector<TinyProfileOptions> out(6);
  out[1].rank_below = 64;  // not projected
  out[1].predict_type = kernels::GgmlType::kQ4_0;
  out[1].rope = RopePairs::kSplitHalf;
  out[2].rank_below = out[2].rank_token = 0;
  out[3].rank_below = 0;  // from the token alone
  out[3].pairs = 4;
  out[4].rank_token = 0;
  out[4].group = 64;
  out[4].geometry = {4, 8, 24, KvDtype::kF16};  // groups that cut through heads
  out[4].pairs = 12;
  out[5].geometry = {2, 1, 96, KvDtype::kF16};
  out[5].group = 96;
  out[5].pairs = 48;
  out[5].step = 0.125f;
  return out;
}

// Errors of the block against the column, checked against `bound` for all but exact tokens.
void CheckWithin(const KvCache& cache, const TinyColumn& c, uint32_t layer, double bound,
                 double* sum_of_squares) {
  for (const KvSide side : {KvSide::kK, KvSide::kV}) {
    const std::vector<float> got = Rows(cache, c, layer, side);
    const std::vector<float> want = Floats((side == KvSide::kK ? c.k : c.v)[layer]);
    for (size_t i = 0; i < got.size(); ++i) {
      const double error = std::abs(got[i] - want[i]);
      CAPTURE(layer, i, bound);
      REQUIRE(error <= bound);
      *sum_of_squares += error * error;
    }
  }
}

}  // namespace

TEST_CASE("aatc: errors fall with the level and stay within half a step, bytes grow") {
  for (const TinyProfileOptions& options : Cases()) {
    const Coded coded(options);
    CHECK(coded.encoder->info().name == (coded.profile->shape().predicts() ? "aatc-pred" : "aatc"));
    CHECK(coded.decoder->predicts() == (options.rank_below > 0));
    for (const uint32_t tokens : {1u, 70u, 300u}) {
      const TinyColumn c(options.geometry, tokens, 64, 3);
      const Planes planes = coded.Encode(c);
      double before = INFINITY;
      for (size_t level = 1; level <= 5; ++level) {
        CAPTURE(tokens, level);
        KvCache cache = CacheFor(c, options.geometry);
        REQUIRE_OK(DecodeColumn(nullptr, coded.decoder.get(), Level(planes, level), c.first_token,
                                c.tokens, nullptr, &cache));
        double squares = 0;
        for (uint32_t l = 1; l < options.geometry.layers; ++l) {
          // A turn mixes the errors of a pair. What is left is rounding, of values up to some tens.
          const double bound = std::sqrt(2.0) * InverseNorm(*coded.profile, l) * 0.5 *
                                   options.step / Pow3(static_cast<uint32_t>(level) - 1) +
                               1e-4;
          CheckWithin(cache, c, l, bound, &squares);
        }
        CHECK(squares < before / 4);  // a third of the step is a ninth of the square
        before = squares;
      }
      for (uint32_t l = 0; l < options.geometry.layers; ++l) {
        for (size_t p = 0; p < 5; ++p) {
          CHECK(planes[l][p].size() >= (l == 0 ? 2u : 10u));
          CHECK((l > 0 || planes[l][p].size() == 2));
        }
      }
    }
  }
}

TEST_CASE("aatc: the same bytes and values with any number of threads") {
  const Coded coded(TinyProfileOptions{});
  const TinyColumn c(coded.options.geometry, 700, 0, 4);
  const Planes planes = coded.Encode(c);
  std::vector<float> want;
  for (const int threads : {0, 1, 3}) {
    const auto pool = threads > 0 ? std::make_unique<ThreadPool>(threads) : nullptr;
    CHECK(coded.Encode(c, pool.get()) == planes);
    KvCache cache = CacheFor(c, coded.options.geometry);
    REQUIRE_OK(DecodeColumn(nullptr, coded.decoder.get(), Level(planes, 3), 0, c.tokens, pool.get(),
                            &cache));
    const std::vector<float> got = Rows(cache, c, 2, KvSide::kK);
    if (want.empty()) want = got;
    CHECK(got == want);
  }
}

TEST_CASE("aatc: blocks may arrive in any order, and rows be finished in any strips") {
  const Coded coded(TinyProfileOptions{.geometry = {5, 2, 16, KvDtype::kF16}});
  const TinyColumn c(coded.options.geometry, 300, 0, 5);
  const Planes planes = coded.Encode(c);
  KvCache want = CacheFor(c, coded.options.geometry);
  REQUIRE_OK(
      DecodeColumn(nullptr, coded.decoder.get(), Level(planes, 2), 0, c.tokens, nullptr, &want));
  for (uint32_t seed = 0; seed < 5; ++seed) {
    std::mt19937 rng(seed);
    std::vector<uint32_t> order{1, 2, 3, 4};
    std::shuffle(order.begin(), order.end(), rng);
    std::map<uint32_t, BlockResidual> read;
    for (const uint32_t l : order) {
      auto block = coded.decoder->Read(l, c.shape, testing::Views(planes[l], 2));
      REQUIRE_OK(block);
      CHECK(block->planes == 2);
      CHECK(block->symbols.size() == 2 * c.shape.elements());
      read[l] = *std::move(block);
    }
    KvCache cache = CacheFor(c, coded.options.geometry);
    auto chain = coded.decoder->Begin(0, c.tokens);
    REQUIRE_OK(chain);
    RestartChain(*coded.decoder, cache, 0, 0, 0, 300, chain->get());
    for (uint32_t l = 1; l < 5; ++l) {
      CacheRowSink sink(&cache, l, 0);
      std::vector<uint32_t> strips{0, kFinishRows};
      std::shuffle(strips.begin(), strips.end(), rng);
      for (const uint32_t begin : strips) {
        REQUIRE_OK(coded.decoder->Finish(read[l], l, begin, std::min(begin + kFinishRows, 300u),
                                         chain->get(), &sink));
      }
      for (const KvSide side : {KvSide::kK, KvSide::kV}) {
        REQUIRE(Rows(cache, c, l, side) == Rows(want, c, l, side));
      }
    }
  }
}

TEST_CASE("aatc-pred: what is predicted from computed rows stays near what was coded") {
  // Rows of layer 2 are the exact ones instead of the first plane's: layer 3 then errs by what the
  // prediction makes of the difference, which is below the level 1 error of layer 2.
  const Coded coded(TinyProfileOptions{.geometry = {4, 2, 16, KvDtype::kF16}});
  const TinyColumn c(coded.options.geometry, 200, 64, 6);
  const Planes planes = coded.Encode(c);
  KvCache cache = CacheFor(c, coded.options.geometry);
  cache.ImportBlock(2, 64, 200, c.k[2].data(), c.v[2].data());
  auto chain = coded.decoder->Begin(64, c.tokens);
  REQUIRE_OK(chain);
  RestartChain(*coded.decoder, cache, 2, 64, 0, 200, chain->get());
  auto block = coded.decoder->Read(3, c.shape, testing::Views(planes[3], 1));
  REQUIRE_OK(block);
  CacheRowSink sink(&cache, 3, 64);
  REQUIRE_OK(coded.decoder->Finish(*block, 3, 0, 200, chain->get(), &sink));
  const double direct = InverseNorm(*coded.profile, 3) * 0.5 * coded.options.step;
  const double below = InverseNorm(*coded.profile, 2) * 0.5 * coded.options.step;
  const double carried = below * 64 * (200 / 1024.0) * 32 * (100 / 1024.0);
  double squares = 0, chained = 0;
  CheckWithin(cache, c, 3, std::sqrt(2.0) * (direct + carried), &squares);
  REQUIRE_OK(
      DecodeColumn(nullptr, coded.decoder.get(), Level(planes, 1), 64, c.tokens, nullptr, &cache));
  CheckWithin(cache, c, 3, std::sqrt(2.0) * direct + 1e-4, &chained);
  CHECK(squares < 16 * chained);  // typical errors carry much less than the worst
}

TEST_CASE("aatc-pred: the encoder finds how much a computed base adds to its own error") {
  for (const int most : {60, 100, 400}) {
    CAPTURE(most);
    TinyProfileOptions options;
    options.most_predict = most;
    const Coded coded(options);
    const KvGeometry& g = options.geometry;
    const uint32_t n = 700;
    const TinyColumn c(g, n, 1024, 12);
    const auto encoded = coded.encoder->EncodeColumn(c.input(), nullptr);
    REQUIRE_OK(encoded);
    // The only split of three layers: layer 2 on a streamed layer 1, and on an exact one.
    KvCache streamed = CacheFor(c, g), computed = CacheFor(c, g);
    const auto views = Level(encoded->planes, 1);
    REQUIRE_OK(DecodeColumn(nullptr, coded.decoder.get(), views, c.first_token, c.tokens, nullptr,
                            &streamed));
    computed.ImportBlock(1, c.first_token, n, c.k[1].data(), c.v[1].data());
    auto chain = coded.decoder->Begin(c.first_token, c.tokens);
    REQUIRE_OK(chain);
    RestartChain(*coded.decoder, computed, 1, c.first_token, 0, n, chain->get());
    const auto residual = coded.decoder->Read(2, c.shape, views[2]);
    REQUIRE_OK(residual);
    CacheRowSink sink(&computed, 2, c.first_token);
    REQUIRE_OK(coded.decoder->Finish(*residual, 2, 0, n, chain->get(), &sink));
    double own = 0, added = 0;
    for (const KvSide side : {KvSide::kK, KvSide::kV}) {
      const std::vector<float> a = Rows(streamed, c, 2, side), b = Rows(computed, c, 2, side);
      const std::vector<float> truth = Floats((side == KvSide::kK ? c.k : c.v)[2]);
      for (size_t i = 0; i < a.size(); ++i) {
        own += (a[i] - truth[i]) * (a[i] - truth[i]);
        added += (b[i] - a[i]) * (b[i] - a[i]);
      }
    }
    // Its 64 rows stand for 700, and it weighs errors by transforms that are near 1 here.
    CHECK(encoded->base_mismatch > 0.7 * added / own);
    CHECK(encoded->base_mismatch < 1.4 * added / own);
    CHECK(encoded->needs_streamed_base() == (most == 400));
  }
  TinyProfileOptions alone;  // nothing to compare without a prediction from below
  alone.rank_below = 0;
  const TinyColumn c(alone.geometry, 100, 0, 13);
  const auto encoded = Coded(alone).encoder->EncodeColumn(c.input(), nullptr);
  REQUIRE_OK(encoded);
  CHECK(encoded->base_mismatch == 0);
}

TEST_CASE("aatc: exact tokens are the context's first four and those beyond the range") {
  for (const bool predicts : {false, true}) {
    TinyProfileOptions options;
    if (!predicts) options.rank_below = options.rank_token = 0;
    const Coded coded(options);
    TinyColumn c(options.geometry, 70, 0, 7);
    c.v[1][c.shape.head_dim * 30 + 5] = kernels::FloatToHalf(-4000.0f);
    c.k[2][c.shape.head_dim * 69] = kernels::FloatToHalf(65504.0f);
    const Planes planes = coded.Encode(c);
    // What is predicted from a value far out is far out too.
    std::vector<std::vector<uint16_t>> exact{{}, {0, 1, 2, 3, 30}, {0, 1, 2, 3, 69}};
    if (predicts) exact[2].insert(exact[2].begin() + 4, 30);
    for (size_t level = 1; level <= 5; ++level) {
      KvCache cache = CacheFor(c, options.geometry);
      REQUIRE_OK(DecodeColumn(nullptr, coded.decoder.get(), Level(planes, level), 0, c.tokens,
                              nullptr, &cache));
      for (uint32_t l = 1; l < 3; ++l) {
        auto block = coded.decoder->Read(l, c.shape, testing::Views(planes[l], level));
        REQUIRE_OK(block);
        CHECK(block->exact_tokens == exact[l]);
        for (const KvSide side : {KvSide::kK, KvSide::kV}) {
          const std::vector<float> got = Rows(cache, c, l, side);
          const std::vector<float> want = Floats((side == KvSide::kK ? c.k : c.v)[l]);
          for (uint32_t h = 0; h < c.shape.kv_heads; ++h) {
            for (const uint32_t t : exact[l]) {
              const size_t at = (size_t{h} * c.shape.tokens + t) * c.shape.head_dim;
              REQUIRE(std::equal(&got[at], &got[at] + c.shape.head_dim, &want[at]));
            }
          }
        }
      }
    }
    // Beyond the range everywhere: all tokens.
    const TinyColumn all(options.geometry, 40, 64, 8, 1000000);
    const Planes exact_planes = coded.Encode(all);
    auto block = coded.decoder->Read(1, all.shape, testing::Views(exact_planes[1], 1));
    REQUIRE_OK(block);
    CHECK(block->exact_tokens.size() == 40);
    KvCache cache = CacheFor(all, options.geometry);
    REQUIRE_OK(DecodeColumn(nullptr, coded.decoder.get(), Level(exact_planes, 1), 64, all.tokens,
                            nullptr, &cache));
    CHECK(Rows(cache, all, 2, KvSide::kV) == Floats(all.v[2]));
  }
}

TEST_CASE("aatc: first values 127, 128 and 404 at the borders of symbols and escapes") {
  const Coded coded(TinyProfileOptions{});
  const uint32_t runs = 2 * coded.profile->shape().row();
  for (const uint32_t tokens : {1u, 33u}) {
    QuantizedBlock block;
    std::mt19937 rng(9);
    for (size_t i = 0; i < size_t{runs} * tokens; ++i) {
      const int edges[] = {0, 1, 126, 127, 128, 129, 403, 404};
      const int first = edges[rng() % 8] * (rng() % 2 == 0 ? 1 : -1);
      const int rest = static_cast<int>(rng() % 81) - 40;
      block.symbols.push_back(static_cast<int16_t>(81 * first + rest));
    }
    const auto planes = WritePlanes(coded.encoder->info(), *coded.profile, 1, tokens, block);
    const BlockShape shape{2, tokens, 16};
    for (size_t level = 1; level <= 5; ++level) {
      auto back = coded.decoder->Read(1, shape, testing::Views(planes, level));
      REQUIRE_OK(back);
      for (size_t i = 0; i < block.symbols.size(); ++i) {
        REQUIRE(back->symbols[i] == Coarser(block.symbols[i], static_cast<uint32_t>(5 - level)));
      }
    }
  }
}

TEST_CASE("aatc: not finite input is refused with its place") {
  const Coded coded(TinyProfileOptions{});
  TinyColumn c(coded.options.geometry, 20, 0, 10);
  c.v[2][(size_t{1} * 20 + 13) * 16 + 7] = 0x7E00;
  const absl::Status s = coded.encoder->EncodeColumn(c.input(), nullptr).status();
  CHECK(s.code() == absl::StatusCode::kInvalidArgument);
  for (const char* part : {"layer 2", "V is not finite", "head 1", "token 13", "channel 7"}) {
    CHECK(s.message().find(part) != absl::string_view::npos);
  }
  TinyColumn bad_token(coded.options.geometry, 20, 0, 10);
  bad_token.tokens[3] = -1;
  CHECK(coded.encoder->EncodeColumn(bad_token.input(), nullptr).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("aatc: another profile, codec, shape or layer is refused") {
  const Coded coded(TinyProfileOptions{});
  const TinyColumn c(coded.options.geometry, 20, 0, 11);
  const Planes planes = coded.Encode(c);
  const auto read = [&](uint32_t layer, const BlockShape& shape, const std::vector<std::string>& p,
                        size_t n) {
    return coded.decoder->Read(layer, shape, testing::Views(p, n)).status().code();
  };
  REQUIRE(read(1, c.shape, planes[1], 5) == absl::StatusCode::kOk);
  CHECK(read(0, c.shape, planes[0], 5) == absl::StatusCode::kOk);
  // Layer 0's planes hold nothing, all others something.
  CHECK(read(0, c.shape, planes[1], 1) == absl::StatusCode::kDataLoss);
  CHECK(read(1, c.shape, planes[0], 1) == absl::StatusCode::kDataLoss);
  CHECK(read(1, c.shape, planes[2], 5) == absl::StatusCode::kDataLoss);
  CHECK(read(2, c.shape, planes[1], 5) == absl::StatusCode::kDataLoss);
  CHECK(read(3, c.shape, planes[1], 5) == absl::StatusCode::kInvalidArgument);
  CHECK(read(1, {1, 20, 32}, planes[1], 5) == absl::StatusCode::kInvalidArgument);
  CHECK(read(1, {2, 20, 17}, planes[1], 5) == absl::StatusCode::kInvalidArgument);
  CHECK(read(1, {2, 0, 16}, planes[1], 5) == absl::StatusCode::kInvalidArgument);
  CHECK(read(1, {2, 21, 16}, planes[1], 1) == absl::StatusCode::kDataLoss);
  CHECK(read(1, c.shape, planes[1], 0) == absl::StatusCode::kInvalidArgument);
  // Planes of another codec, and in another order.
  TinyProfileOptions plain = coded.options;
  plain.rank_below = plain.rank_token = 0;
  const Coded other(plain);
  CHECK(read(1, c.shape, other.Encode(c)[1], 5) == absl::StatusCode::kDataLoss);
  std::vector<std::string> swapped = planes[1];
  std::swap(swapped[1], swapped[2]);
  CHECK(read(1, c.shape, swapped, 5) == absl::StatusCode::kDataLoss);
  swapped = planes[1];
  swapped[3] =
      planes[2][3];  // of another layer: another stream, which does not end where it should
  CHECK(read(1, c.shape, swapped, 5) == absl::StatusCode::kDataLoss);

  // Identity: the profile's digest is part of the codec's.
  TinyProfileOptions seed = coded.options;
  seed.seed = 2;
  CHECK(Coded(seed).encoder->digest() != coded.encoder->digest());
  CHECK(coded.encoder->digest() == CodecDigest(AatcPredInfo(), &coded.profile->digest()));

  // A profile whose codec is none of ours.
  for (const uint32_t id : {5u, 6u, 8u}) {
    ProfileContent content = testing::TinyProfileContent({});
    content.shape.codec_id = id;
    auto profile = CodecProfile::Parse(*WriteProfile(content));
    REQUIRE_OK(profile);
    CHECK(MakeResidualDecoder(*profile, TinyEmbedding(32)).status().code() ==
          absl::StatusCode::kFailedPrecondition);
  }
  CHECK(MakeResidualDecoder(coded.profile, TinyEmbedding(64)).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(MakeResidualDecoder(coded.profile, {}).status().code() ==
        absl::StatusCode::kInvalidArgument);

  // A cache of another model is refused before a row of it is looked at.
  auto pool = KvPagePool::Create({3, 1, 8, KvDtype::kF16}, 1 << 24);
  REQUIRE_OK(pool);
  KvCache cache(*pool);
  REQUIRE_OK(cache.Extend(20));
  CHECK(DecodeColumn(nullptr, coded.decoder.get(), Level(planes, 1), 0, c.tokens, nullptr, &cache)
            .code() == absl::StatusCode::kInvalidArgument);
  CHECK(DecodeColumn(nullptr, coded.decoder.get(), Level(planes, 1), 0xFFFFFFFF, c.tokens, nullptr,
                     &cache)
            .code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("aatc: every truncation and every byte more is refused") {
  const Coded coded(TinyProfileOptions{});
  TinyColumn c(coded.options.geometry, 9, 0, 12);
  c.v[1][c.shape.head_dim * 6 + 5] = kernels::FloatToHalf(120.0f);  // an escape
  const Planes planes = coded.Encode(c);
  for (size_t p = 0; p < 5; ++p) {
    std::vector<std::string> bad = planes[1];
    for (size_t n = 0; n < planes[1][p].size(); ++n) {
      bad[p] = planes[1][p].substr(0, n);
      const absl::Status s = coded.decoder->Read(1, c.shape, testing::Views(bad, 5)).status();
      REQUIRE(s.code() == absl::StatusCode::kDataLoss);
      if (p == 0 || n < 2) continue;  // the first plane names its fields, a tag its plane
      CAPTURE(s.ToString());
      REQUIRE(s.message().find(absl::StrCat("refinement plane ", p)) != absl::string_view::npos);
    }
    bad[p] = planes[1][p] + '\0';
    REQUIRE(coded.decoder->Read(1, c.shape, testing::Views(bad, 5)).status().code() ==
            absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("aatc: a column file shows every flipped bit") {
  const Coded coded(TinyProfileOptions{.geometry = {2, 1, 32, KvDtype::kF16}, .pairs = 16});
  const TinyColumn c(coded.options.geometry, 5, 0, 13);
  const Planes planes = coded.Encode(c);
  const Digest key{}, model{};
  auto writer = ColumnWriter::Create(coded.options.geometry, 5, coded.encoder->info(), model, key,
                                     &coded.profile->digest());
  REQUIRE_OK(writer);
  for (const auto& layer : planes) REQUIRE_OK(writer->AppendLayer(layer));
  std::string blob = *writer->Finish();
  REQUIRE_OK(VerifyColumn(AsBytes(blob)));
  auto header = ParseColumnHeader(AsBytes(blob));
  REQUIRE_OK(header);
  CHECK_FALSE(header->CheckIdentity(model, CodecDigest(coded.encoder->info()), key).ok());
  REQUIRE_OK(header->CheckIdentity(model, coded.encoder->digest(), key));
  for (size_t at = 0; at < blob.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      blob[at] = static_cast<char>(blob[at] ^ (1 << bit));
      const absl::StatusCode code = VerifyColumn(AsBytes(blob)).code();
      CAPTURE(at, bit);
      REQUIRE(
          (code == absl::StatusCode::kDataLoss || code == absl::StatusCode::kFailedPrecondition));
      blob[at] = static_cast<char>(blob[at] ^ (1 << bit));
    }
  }
}

namespace {

// A first plane by hand: no exact tokens, the table that the profile has for each run.
struct HandPlane {
  std::string tag{"\x07\x00", 2};
  std::vector<uint16_t> exact;
  std::string exact_values;
  uint32_t escapes = 0;
  std::string escaped, numbers, stream;
  std::string Bytes() const {
    ByteWriter out;
    out.WriteBytes(tag);
    out.Write(static_cast<uint16_t>(exact.size()));
    for (const uint16_t t : exact) out.Write(t);
    out.WriteBytes(exact_values);
    out.Write(escapes);
    out.WriteBytes(escaped);
    out.WriteBytes(numbers);
    out.WriteBytes(stream);
    return out.Take();
  }
};

std::string Escape(uint32_t index, int16_t value) {
  ByteWriter out;
  out.Write(index);
  out.Write(value);
  return out.Take();
}

}  // namespace

TEST_CASE("aatc: counts, indices, numbers and fillings out of range name what is wrong") {
  const Coded coded(TinyProfileOptions{});
  const BlockShape shape{2, 3, 16};
  const uint32_t runs = 64;
  // All zeros but one escape at index 5, in the tables that the profile names.
  std::vector<uint8_t> symbols(runs * 3),
      tables(coded.profile->layer(1).table.begin(), coded.profile->layer(1).table.end());
  tables[1] = static_cast<uint8_t>((tables[1] + kProfileTables - 1) % kProfileTables);
  symbols[5] = kEscapeSymbol;
  const RansOutput coded_symbols =
      RansEncode(symbols, 3, tables, coded.profile->frequencies(), kProfileSymbols);
  ByteWriter stream;
  stream.Write(static_cast<uint32_t>(coded_symbols.words.size()));
  for (const uint32_t state : coded_symbols.states) stream.Write(state);
  for (const uint16_t word : coded_symbols.words) stream.Write(word);
  const auto numbers = [&](uint32_t gamma_of_run_1, uint32_t filling) {
    BitWriter bits;
    for (uint32_t r = 0; r < runs; ++r) bits.WriteGamma(r == 1 ? gamma_of_run_1 : 1);
    if (filling != 0) bits.Write(filling, 1);
    return bits.Take();
  };
  const uint32_t gamma = 2;  // a step of -1
  HandPlane good;
  good.escapes = 1;
  good.escaped = Escape(5, 300);
  good.numbers = numbers(gamma, 0);
  good.stream = stream.Take();
  const auto refused = [&](const HandPlane& plane, std::string_view why) {
    const std::string bytes = plane.Bytes();
    const std::vector<std::span<const uint8_t>> views{AsBytes(bytes)};
    const absl::Status s = coded.decoder->Read(1, shape, views).status();
    CAPTURE(s.ToString(), why);
    CHECK(s.code() == absl::StatusCode::kDataLoss);
    CHECK(s.message().find(absl::string_view(why.data(), why.size())) != absl::string_view::npos);
  };
  {
    const std::string bytes = good.Bytes();
    const std::vector<std::span<const uint8_t>> views{AsBytes(bytes)};
    auto block = coded.decoder->Read(1, shape, views);
    REQUIRE_OK(block);
    CHECK(block->symbols[5] == 300);
    CHECK(std::count(block->symbols.begin(), block->symbols.end(), 0) == 191);
  }
  HandPlane bad = good;
  bad.escaped = Escape(4, 300);
  refused(bad, "has index 4");
  bad.escaped = Escape(0xFFFFFFFF, 300);
  refused(bad, "has index 4294967295");
  bad.escaped = Escape(5, 405);
  refused(bad, "is 405; allowed -404..404");
  bad.escaped = Escape(5, -32768);
  refused(bad, "is -32768");
  bad.escaped = Escape(5, 0);  // which has a symbol in every table
  refused(bad, "which has a symbol");
  bad = good;
  bad.escapes = 0;
  bad.escaped.clear();
  refused(bad, "1 escapes in the stream, 0 values");
  bad.escapes = 2;
  bad.escaped = Escape(5, 300) + Escape(5, 300);
  refused(bad, "1 escapes in the stream, 2 values");
  bad.escapes = 0xFFFFFFFF;  // 24 GiB: said to be there, not allocated
  refused(bad, "first plane");
  bad = good;
  bad.numbers = numbers(65, 0);  // one more than there are steps
  refused(bad, "out of range");
  bad.numbers = numbers(127, 0);
  refused(bad, "out of range");
  bad.numbers = numbers(gamma, 1);
  refused(bad, "filling bits are not 0");
  bad = good;
  bad.stream[3] = '\x7F';  // words: 2 billion
  refused(bad, "first plane");
  bad = good;
  bad.exact = {3};
  bad.exact_values.assign(4 * 32, '\0');
  refused(bad, "token 3");
  bad.exact = {1, 1};
  bad.exact_values.assign(2 * 4 * 32, '\0');
  refused(bad, "number 1 is token 1; allowed 2..2");
  bad.exact = {0, 1, 2, 3};
  bad.exact_values.assign(4 * 4 * 32, '\0');
  refused(bad, "4; the block has 3");
  bad.exact = {0};
  bad.exact_values.assign(4 * 32, '\0');
  bad.exact_values[1] = '\x7C';
  refused(bad, "not finite");
  bad = good;
  bad.tag = std::string("\x06\x00", 2);
  refused(bad, "");
  bad.tag = std::string("\x07\x01", 2);
  refused(bad, "");
}

TEST_CASE("aatc: no bytes make the decoder take more memory than it says") {
  const Coded coded(TinyProfileOptions{});
  TinyColumn c(coded.options.geometry, 60, 0, 14);
  c.v[1][c.shape.head_dim * 6 + 5] = kernels::FloatToHalf(120.0f);
  const Planes planes = coded.Encode(c);
  // The result and what dec_planes.h says beyond it; some for a message.
  const size_t limit = 6 * c.shape.elements() + 16 * 64 + 2000;
  std::mt19937 rng(15);
  size_t refused = 0, largest = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> bad = planes[1];
    for (uint32_t n = rng() % 3; n > 0; --n) {
      std::string& plane = bad[rng() % 5];
      // Counts stand at the front.
      plane[rng() % (rng() % 2 == 0 ? 20 : plane.size())] = static_cast<char>(rng());
    }
    testing::allocated_bytes = 0;
    const auto block = coded.decoder->Read(1, c.shape, testing::Views(bad, 5));
    const size_t taken = testing::allocated_bytes;
    REQUIRE(taken <= limit + bad[0].size());
    largest = std::max(largest, taken);
    refused += block.ok() ? 0 : 1;
  }
  CHECK(refused > 2000);
  CHECK((largest == 0 || largest > 6 * c.shape.elements()));  // 0: a sanitizer counts
  const std::string profile(coded.profile->bytes());
  for (int round = 0; round < 300; ++round) {
    std::string bytes = profile;
    for (int n = 0; n < 3; ++n) bytes[12 + rng() % 60] = static_cast<char>(rng());
    const auto n = static_cast<uint32_t>(bytes.size());
    std::memcpy(bytes.data() + 12, &n, 4);
    const uint32_t crc = Crc32c(AsBytes(bytes).first(bytes.size() - 4));
    std::memcpy(bytes.data() + bytes.size() - 4, &crc, 4);
    testing::allocated_bytes = 0;
    (void)CodecProfile::Parse(std::move(bytes));
    REQUIRE(testing::allocated_bytes < 100000 + profile.size());
  }
}

TEST_CASE("bit strings: Elias gamma codes") {
  BitWriter writer;
  for (uint32_t v = 1; v < 300; ++v) writer.WriteGamma(v);
  const std::string bytes = writer.Take();
  BitReader reader(AsBytes(bytes));
  for (uint32_t v = 1; v < 300; ++v) {
    uint32_t got = 0;
    REQUIRE(reader.ReadGamma(8, &got));
    REQUIRE(got == v);
  }
  CHECK(reader.bytes_read() == bytes.size());
  CHECK(reader.filling_is_zero());
  // 1 is a one; 2 is 0, 1, 0; 3 is 0, 1, 1: from the least significant bit, 1 010 011 0.
  BitWriter small;
  for (const uint32_t v : {1u, 2u, 3u}) small.WriteGamma(v);
  CHECK(small.Take() == std::string(1, '\x65'));
  uint32_t value = 0;
  const std::string zeros(4, '\0'), seven("\x80", 1), long_code("\x00\x01\x00", 3);
  CHECK_FALSE(BitReader(AsBytes(zeros)).ReadGamma(15, &value));     // never a one
  CHECK_FALSE(BitReader(AsBytes(seven)).ReadGamma(15, &value));     // low bits are missing
  CHECK_FALSE(BitReader(AsBytes(long_code)).ReadGamma(7, &value));  // too long
  CHECK(BitReader(AsBytes(long_code)).ReadGamma(8, &value));
  CHECK(value == 256);
  CHECK_FALSE(BitReader({}).ReadGamma(15, &value));
}

TEST_CASE("aatc: planes, steps and numbers are inverse to one another") {
  for (int32_t v = -32724; v <= 32724; ++v) {
    // Dropping planes one by one or at once is the same.
    int32_t step_by_step = v;
    for (uint32_t n = 1; n <= 4; ++n) {
      const int32_t coarse = Coarser(step_by_step, 1);
      REQUIRE(std::abs(step_by_step - 3 * coarse) <= 1);
      step_by_step = coarse;
      REQUIRE(step_by_step == Coarser(v, n));
    }
    REQUIRE(std::abs(step_by_step) <= kMaxFirstMagnitude);
  }
  for (uint32_t s = 0; s < kEscapeSymbol; ++s) REQUIRE(ValueToSymbol(SymbolToValue(s)) == s);
}

}  // namespace sparkv
