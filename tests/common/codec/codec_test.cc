#include "common/codec/codec.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "common/codec/dec_values.h"
#include "common/codec/enc_codec.h"
#include "common/codec/format.h"
#include "tests/catch.h"
#include "tests/common/codec/codec_round_trip.h"
#include "tests/common/codec/codec_testing.h"

namespace sparkv {
namespace {

using testing::Block;
using testing::Decode;
using testing::Encode;
using testing::Errors;
using testing::kShapes;
using testing::RandomBlock;
using testing::RmsError;
using testing::Views;

}  // namespace

TEST_CASE("Registry finds codecs by name and id and refuses others by name") {
  REQUIRE(CodecNames() ==
          std::vector<std::string>{"generic", "f16", "sparkv-paper", "cachegen", "kivi"});
  for (const std::string& name : CodecNames()) {
    const CodecInfo& info = (*FindDecoder(name))->info();
    CHECK(info.name == name);
    CHECK((*FindDecoder(info.id, info.version))->info().name == name);
    CHECK((*FindEncoder(name))->info().id == info.id);
    CHECK(info.levels.back().planes == info.planes);
  }
  for (const absl::Status& s :
       {FindDecoder("zip").status(), FindDecoder(2, 9).status(), FindEncoder("zip").status()}) {
    CHECK(s.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(s.message().find("generic") != absl::string_view::npos);
    CHECK(s.message().find("f16") != absl::string_view::npos);
  }
  CHECK(FindDecoder(1, 0).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("Levels are prefixes of planes, and unknown levels are refused with the list") {
  const CodecInfo& info = (*FindDecoder("generic"))->info();
  CHECK(*info.PlanesForLevel(4) == 1);
  CHECK(*info.PlanesForLevel(5) == 2);
  CHECK(*info.PlanesForLevel(8) == 3);
  CHECK(*info.PlanesForLevel(0) == 2);
  const absl::Status s = info.PlanesForLevel(6).status();
  CHECK(s.code() == absl::StatusCode::kInvalidArgument);
  CHECK(s.message().find("4, 5, 8") != absl::string_view::npos);
}

TEST_CASE("Codec digests differ in every field") {
  const CodecInfo base = (*FindDecoder("generic"))->info();
  CodecInfo other = base;
  CHECK(CodecDigest(base) == CodecDigest(other));
  CHECK(CodecDigest(base) != CodecDigest((*FindDecoder("f16"))->info()));
  other.version = 2;
  CHECK(CodecDigest(base) != CodecDigest(other));
  other = base;
  other.levels[0].level = 3;
  CHECK(CodecDigest(base) != CodecDigest(other));
}

TEST_CASE("f16 restores every bit of every shape, all 65536 patterns and NaN payloads included") {
  for (const BlockShape& shape : kShapes) {
    Block b = RandomBlock(shape, 3);
    const Block got = Decode("f16", shape, Encode("f16", b), 1);
    CHECK(got.k == b.k);
    CHECK(got.v == b.v);
  }
  Block all{{2, 1024, 32}, {}, {}};
  for (uint32_t i = 0; i < 65536; ++i) {
    all.k.push_back(static_cast<uint16_t>(i));
    all.v.push_back(static_cast<uint16_t>(i * 40503u));
  }
  const Block got = Decode("f16", all.shape, Encode("f16", all), 1);
  CHECK(got.k == all.k);
  CHECK(got.v == all.v);
}

TEST_CASE("f16 makes real-looking data smaller and constants tiny") {
  const Block b = RandomBlock({2, 1024, 64}, 1);
  CHECK(Encode("f16", b)[0].size() < b.k.size() * 4 * 9 / 10);
  Block zero = b;
  std::fill(zero.k.begin(), zero.k.end(), uint16_t{0});
  std::fill(zero.v.begin(), zero.v.end(), uint16_t{0});
  CHECK(Encode("f16", zero)[0].size() < 16);
}

TEST_CASE("generic keeps every value within its level's step on every shape") {
  for (const BlockShape& shape : kShapes) {
    const Block b = RandomBlock(shape, 7);
    const std::vector<std::string> planes = Encode("generic", b);
    // Bins that a range is divided into; V's range grows by up to 1/16 + 1/8 through rounding
    // outwards.
    const double bins[] = {15.9, 31.8, 255};
    for (size_t p = 1; p <= 3; ++p) {
      const Block got = Decode("generic", shape, planes, p);
      for (uint32_t h = 0; h < shape.kv_heads; ++h) {
        for (uint32_t d = 0; d < shape.head_dim; ++d) {
          float lo = b.K(h, 0, d), hi = lo;
          for (uint32_t t = 0; t < shape.tokens; ++t) {
            lo = std::min(lo, b.K(h, t, d));
            hi = std::max(hi, b.K(h, t, d));
          }
          // Half a bin, half a code of the encoder's own rounding, half an f16 unit.
          const double limit = (hi - lo) * (0.5 / bins[p - 1] + 0.51 / 255) +
                               std::max(std::abs(lo), std::abs(hi)) / 2048 + 1e-7;
          for (uint32_t t = 0; t < shape.tokens; ++t) {
            REQUIRE(std::abs(got.K(h, t, d) - b.K(h, t, d)) <= limit);
          }
        }
        for (uint32_t t = 0; t < shape.tokens; ++t) {
          float lo = b.V(h, t, 0), hi = lo;
          for (uint32_t d = 0; d < shape.head_dim; ++d) {
            lo = std::min(lo, b.V(h, t, d));
            hi = std::max(hi, b.V(h, t, d));
          }
          const double limit = 1.2 * (hi - lo) * (0.5 / bins[p - 1] + 0.51 / 255) +
                               std::max(std::abs(lo), std::abs(hi)) / 2048 + 1e-7;
          for (uint32_t d = 0; d < shape.head_dim; ++d) {
            REQUIRE(std::abs(got.V(h, t, d) - b.V(h, t, d)) <= limit);
          }
        }
      }
    }
  }
}

TEST_CASE("generic: more planes cost bytes and lower the error") {
  const Block b = RandomBlock({3, 1024, 64}, 11);
  const std::vector<std::string> planes = Encode("generic", b);
  Errors previous{1e9, 1e9};
  for (size_t p = 1; p <= 3; ++p) {
    const Errors e = RmsError(b, Decode("generic", b.shape, planes, p));
    CHECK(e.k < 0.6 * previous.k);
    CHECK(e.v < 0.6 * previous.v);
    previous = e;
    CHECK(!planes[p - 1].empty());
  }
  const size_t f16_bytes = 4 * b.k.size();
  CHECK(planes[0].size() * 4 < f16_bytes);
  CHECK((planes[0].size() + planes[1].size()) * 3 < f16_bytes);
}

TEST_CASE("Case Q2: a bias of 600 on some channels does not hurt the others or the products q.k") {
  const BlockShape shape{1, 512, 64};
  Block b = RandomBlock(shape, 21);
  testing::Normal normal(4);
  for (uint32_t t = 0; t < shape.tokens; ++t) {
    for (uint32_t d = 0; d < shape.head_dim; ++d) {
      const float bias = d == 5 || d == 40 ? 600.0f : 0.0f;
      b.k[b.At(0, t, d)] = kernels::FloatToHalf(bias + normal());
    }
  }
  const Block got = Decode("generic", shape, Encode("generic", b), 2);
  double worst = 1;
  for (int trial = 0; trial < 16; ++trial) {
    std::vector<double> x, y;
    std::vector<float> q(shape.head_dim);
    for (float& value : q) value = normal();
    for (uint32_t t = 0; t < shape.tokens; ++t) {
      double a = 0, c = 0;
      for (uint32_t d = 0; d < shape.head_dim; ++d) {
        a += q[d] * b.K(0, t, d);
        c += q[d] * got.K(0, t, d);
      }
      x.push_back(a);
      y.push_back(c);
    }
    double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      mx += x[i] / static_cast<double>(x.size());
      my += y[i] / static_cast<double>(y.size());
    }
    for (size_t i = 0; i < x.size(); ++i) {
      xx += (x[i] - mx) * (x[i] - mx);
      yy += (y[i] - my) * (y[i] - my);
      xy += (x[i] - mx) * (y[i] - my);
    }
    worst = std::min(worst, xy / std::sqrt(xx * yy));
  }
  CHECK(worst > 0.99);
}

TEST_CASE("Case Q2: outliers up to the f16 limits are kept exactly and cost the rest nothing") {
  const BlockShape shape{2, 300, 64};
  const Block plain = RandomBlock(shape, 22);
  Block b = plain;
  b.k[b.At(0, 17, 3)] = kernels::FloatToHalf(-65504.0f);
  b.k[b.At(0, 18, 3)] = kernels::FloatToHalf(65504.0f);
  b.k[b.At(1, 200, 9)] = kernels::FloatToHalf(1000.0f);
  b.k[b.At(1, 201, 9)] = kernels::FloatToHalf(1000.0f);
  b.v[b.At(1, 100, 63)] = kernels::FloatToHalf(-65504.0f);
  for (size_t p = 1; p <= 3; ++p) {
    const Block got = Decode("generic", shape, Encode("generic", b), p);
    const Block want = Decode("generic", shape, Encode("generic", plain), p);
    CHECK(got.k[b.At(0, 17, 3)] == b.k[b.At(0, 17, 3)]);
    CHECK(got.k[b.At(0, 18, 3)] == b.k[b.At(0, 18, 3)]);
    CHECK(got.k[b.At(1, 200, 9)] == b.k[b.At(1, 200, 9)]);
    CHECK(got.v[b.At(1, 100, 63)] == b.v[b.At(1, 100, 63)]);
    Block rest = b;
    for (Block* x : {&rest}) {
      x->k = got.k;
      x->v = got.v;
      for (auto [h, t] : {std::pair{0u, 17u}, {0u, 18u}})
        x->k[b.At(h, t, 3)] = plain.k[b.At(h, t, 3)];
      for (uint32_t t : {200u, 201u}) x->k[b.At(1, t, 9)] = plain.k[b.At(1, t, 9)];
      x->v[b.At(1, 100, 63)] = plain.v[b.At(1, 100, 63)];
    }
    const Errors e = RmsError(plain, rest);
    const Errors base = RmsError(plain, want);
    CHECK(e.k < 1.02 * base.k);
    CHECK(e.v < 1.02 * base.v);
  }
}

TEST_CASE("generic survives the largest ranges f16 has") {
  Block b = RandomBlock({1, 100, 16}, 1);
  for (size_t i = 0; i < b.k.size(); ++i) {
    b.k[i] = kernels::FloatToHalf(i % 2 == 0 ? 65504.0f : -65504.0f);
    b.v[i] = kernels::FloatToHalf(i % 2 == 0 ? -65504.0f : 65504.0f);
  }
  for (size_t p = 1; p <= 3; ++p) {
    const Block got = Decode("generic", b.shape, Encode("generic", b), p);
    for (size_t i = 0; i < b.k.size(); ++i) {
      const float x = kernels::HalfToFloat(got.k[i]);
      REQUIRE(std::isfinite(x));
      REQUIRE(std::abs(x - kernels::HalfToFloat(b.k[i])) < 131008.0f / 15.0f);
      REQUIRE(std::isfinite(kernels::HalfToFloat(got.v[i])));
    }
  }
}

TEST_CASE("Case Q2: a value that is not finite is refused with its place") {
  const BlockShape shape{2, 70, 16};
  for (const uint16_t bad : {uint16_t{0x7C00}, uint16_t{0xFC00}, uint16_t{0x7E01}}) {
    Block b = RandomBlock(shape, 5);
    b.v[b.At(1, 33, 9)] = bad;
    const absl::Status s = (*FindEncoder("generic"))->EncodeBlock(b.input()).status();
    CHECK(s.code() == absl::StatusCode::kInvalidArgument);
    CHECK(s.message().find("V is not finite at head 1, token 33, channel 9") !=
          absl::string_view::npos);
  }
}

TEST_CASE("generic: constant and tiny values") {
  Block b = RandomBlock({1, 100, 32}, 5);
  std::fill(b.k.begin(), b.k.end(), kernels::FloatToHalf(3.25f));
  std::fill(b.v.begin(), b.v.end(), uint16_t{0x8001});  // the largest negative subnormal
  const std::vector<std::string> planes = Encode("generic", b);
  CHECK(planes[0].size() < 4 * 32 * 4 + 300);  // four exact tokens and little else
  for (size_t p = 1; p <= 3; ++p) {
    const Block got = Decode("generic", b.shape, planes, p);
    CHECK(got.k == b.k);
    CHECK(got.v == b.v);
  }
  for (size_t i = 0; i < b.v.size(); ++i) b.v[i] = static_cast<uint16_t>(i % 7 | (i % 2 << 15));
  const Block got = Decode("generic", b.shape, Encode("generic", b), 3);
  for (size_t i = 0; i < b.v.size(); ++i) {
    REQUIRE(std::abs(kernels::HalfToFloat(got.v[i]) - kernels::HalfToFloat(b.v[i])) <= 1.2e-7f);
  }
}

TEST_CASE("Encoders make the same bytes in any thread") {
  const Block b = RandomBlock({2, 200, 32}, 6);
  for (const std::string& codec : CodecNames()) {
    const std::vector<std::string> want = Encode(codec, b);
    std::vector<std::vector<std::string>> got(4);
    std::vector<std::thread> threads;
    for (auto& planes : got) {
      threads.emplace_back([&] { planes = *(*FindEncoder(codec))->EncodeBlock(b.input()); });
    }
    for (std::thread& t : threads) t.join();
    for (const auto& planes : got) CHECK(planes == want);
  }
}

TEST_CASE("Decoders refuse every truncation, appended bytes, and planes of another kind") {
  const Block b = RandomBlock({1, 40, 8}, 8);
  std::vector<uint16_t> k(b.k.size()), v(b.v.size());
  for (const std::string& codec : CodecNames()) {
    const BlockDecoder* decoder = *FindDecoder(codec);
    const std::vector<std::string> planes = Encode(codec, b);
    const auto decode = [&](const std::vector<std::string>& p) {
      return decoder->DecodeBlock(b.shape, Views(p, p.size()), k.data(), v.data()).code();
    };
    REQUIRE(decode(planes) == absl::StatusCode::kOk);
    for (size_t p = 0; p < planes.size(); ++p) {
      for (size_t n = 0; n < planes[p].size(); ++n) {
        std::vector<std::string> cut = planes;
        cut[p] = std::string(planes[p], 0, n);
        REQUIRE(decode(cut) == absl::StatusCode::kDataLoss);
      }
      std::vector<std::string> longer = planes;
      longer[p] += '\0';
      CHECK(decode(longer) == absl::StatusCode::kDataLoss);
    }
    if (planes.size() > 1) {
      std::vector<std::string> swapped = planes;
      std::swap(swapped[0], swapped[1]);
      CHECK(decode(swapped) == absl::StatusCode::kDataLoss);
      swapped = planes;
      std::swap(swapped[1], swapped[2]);
      CHECK(decode(swapped) == absl::StatusCode::kDataLoss);
    }
    CHECK(decode({}) == absl::StatusCode::kInvalidArgument);
    CHECK(decode({planes.size() + 1, planes[0]}) == absl::StatusCode::kInvalidArgument);
  }
  const std::vector<std::string> f16 = Encode("f16", b);
  CHECK((*FindDecoder("generic"))->DecodeBlock(b.shape, Views(f16, 1), k.data(), v.data()).code() ==
        absl::StatusCode::kDataLoss);
}

TEST_CASE("Decoders refuse bad shapes before they touch memory") {
  const std::string plane(10, '\0');
  for (const std::string& codec : CodecNames()) {
    const std::vector<std::string> planes(static_cast<size_t>((*FindDecoder(codec))->info().planes),
                                          plane);
    for (const BlockShape& shape :
         {BlockShape{0, 1, 1}, BlockShape{1, 0, 1}, BlockShape{1, 1, 0}, BlockShape{1025, 1, 1},
          BlockShape{1, 1025, 1}, BlockShape{1, 1, 1025}, BlockShape{1024, 1024, 1024}}) {
      CHECK((*FindDecoder(codec))
                ->DecodeBlock(shape, Views(planes, planes.size()), nullptr, nullptr)
                .code() == absl::StatusCode::kInvalidArgument);
      CHECK((*FindEncoder(codec))->EncodeBlock({.shape = shape, .place = {}}).status().code() ==
            absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST_CASE("Dequantizing: the fast twin equals the reference bit for bit") {
  testing::Normal normal(2);
  for (const auto& [tokens, dim] :
       {std::pair{1u, 1u}, {16u, 16u}, {33u, 64u}, {70u, 20u}, {48u, 144u}}) {
    std::vector<uint8_t> codes(size_t{tokens} * dim);
    for (uint8_t& c : codes) c = static_cast<uint8_t>(normal.Bits());
    std::vector<float> lo(std::max(tokens, dim)), step(lo.size());
    for (size_t i = 0; i < lo.size(); ++i) {
      lo[i] = i % 5 == 0 ? -65504.0f : normal();
      step[i] = i % 5 == 0 ? 600.0f : i % 7 == 0 ? 0.0f : std::abs(normal()) * 0.01f;
    }
    for (const bool per_channel : {false, true}) {
      DequantizeArgs args{codes.data(), tokens,      dim,         lo.data(),
                          step.data(),  per_channel, {8.0f, 3.5f}};
      std::vector<uint16_t> want(codes.size()), got(codes.size());
      DequantizeHeadScalar(args, want.data());
      DequantizeHead(args, got.data());
      CHECK(got == want);
      // The same as a part of a wider head: what lies beside the part must stay.
      args.out_stride = dim + 3;
      args.codes_stride = tokens;
      std::vector<uint16_t> wide(size_t{tokens} * args.out_stride, 0x7E7E);
      std::vector<uint16_t> wide_want = wide;
      for (uint32_t t = 0; t < tokens; ++t) {
        std::copy_n(want.data() + size_t{t} * dim, dim,
                    wide_want.data() + size_t{t} * args.out_stride);
      }
      DequantizeHead(args, wide.data());
      CHECK(wide == wide_want);
    }
  }
}

}  // namespace sparkv
