#include <algorithm>
#include <random>

#include "common/base/bytes.h"
#include "common/codec/dec_halves.h"
#include "common/codec/dec_refine.h"
#include "common/codec/enc_halves.h"
#include "common/codec/enc_refine.h"
#include "common/codec/enc_symbols.h"
#include "common/codec/refine_common.h"
#include "tests/catch.h"

namespace sparkv {

TEST_CASE("Refinement: the order is that of a stable sort") {
  std::mt19937 rng(1);
  for (const size_t n : {1, 2, 3, 4, 5, 7, 100, 1025}) {
    std::vector<uint8_t> codes(n);
    for (uint8_t& c : codes) c = static_cast<uint8_t>(rng() % 5 == 0 ? 255 : rng() % 4);
    std::vector<size_t> want(n), order(n);
    for (size_t i = 0; i < n; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return codes[a] < codes[b]; });
    for (size_t i = 0; i < n; ++i) want[order[i]] = i;
    std::vector<size_t> got(n, n);
    ForEachRefined(codes.data(), n, [&](size_t i, size_t place) { got[i] = place; });
    CHECK(got == want);
  }
}

TEST_CASE("Refinement: round trip for every number of ways, runs whole and not") {
  std::mt19937 rng(2);
  for (int ways = 2; ways <= 8; ++ways) {
    for (const size_t n : {1, 31, 1023, 1024, 1025, 5000}) {
      std::vector<uint8_t> codes(n), finer(n);
      for (size_t i = 0; i < n; ++i) {
        codes[i] = static_cast<uint8_t>(rng() % 16);
        finer[i] = static_cast<uint8_t>(codes[i] * ways + rng() % static_cast<unsigned>(ways));
      }
      std::vector<uint8_t> known = codes;
      ByteWriter out;
      EncodeRefinement(n, ways, finer.data(), known.data(), out);
      CHECK(known == finer);
      ByteReader reader(AsBytes(out.str()));
      REQUIRE_OK(DecodeRefinement(reader, n, ways, "test", codes.data()));
      CHECK(codes == finer);
      CHECK(reader.remaining() == 0);
    }
  }
}

TEST_CASE("Refinement: symbols that follow from the code cost next to nothing") {
  std::vector<uint8_t> codes(65536), finer(codes.size());
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>(i * 40503 % 16);
    finer[i] = static_cast<uint8_t>(2 * codes[i] + (codes[i] < 8 ? 1 : 0));
  }
  ByteWriter out;
  EncodeRefinement(codes.size(), 2, finer.data(), codes.data(), out);
  CHECK(out.size() < 250);
}

TEST_CASE("Refinement refuses symbols beyond the ways and filling that is not 0") {
  const auto decode = [](const std::vector<uint8_t>& symbols, uint32_t runs, int ways, size_t n) {
    ByteWriter out;
    EncodeSymbols(runs, static_cast<uint32_t>(symbols.size() / runs), RefineBits(ways),
                  symbols.data(), out);
    std::vector<uint8_t> codes(n);
    ByteReader reader(AsBytes(out.str()));
    return DecodeRefinement(reader, n, ways, "test", codes.data());
  };
  std::vector<uint8_t> symbols(2048);
  REQUIRE_OK(decode(symbols, 2, 3, 1025));
  symbols[1024] = 2;
  REQUIRE_OK(decode(symbols, 2, 3, 1025));
  symbols[1024] = 3;
  CHECK(decode(symbols, 2, 3, 1025).code() == absl::StatusCode::kDataLoss);
  symbols[1024] = 0;
  symbols[2047] = 1;
  CHECK(decode(symbols, 2, 3, 1025).message().find("filling") != absl::string_view::npos);
}

TEST_CASE("Halves: round trip, and what is not finite or has a sign is refused by name") {
  const std::vector<uint16_t> halves = {0x0000, 0x7BFF, 0x3C00, 0x0001, 0x1234, 0x5678};
  ByteWriter out;
  EncodeHalves(2, 3, halves.data(), out);
  ByteReader reader(AsBytes(out.str()));
  const auto got = DecodeHalves(reader, 2, 3, "test");
  REQUIRE_OK(got);
  CHECK(*got == halves);
  REQUIRE_OK(CheckNoSign(*got, "test"));
  const std::vector<uint16_t> negative = {0, 0x8000};
  CHECK(CheckNoSign(negative, "test").message().find("test: number 1 is negative") !=
        absl::string_view::npos);
  std::vector<uint16_t> infinite = halves;
  infinite[4] = 0xFC00;
  ByteWriter bad;
  EncodeHalves(2, 3, infinite.data(), bad);
  ByteReader bad_reader(AsBytes(bad.str()));
  CHECK(DecodeHalves(bad_reader, 2, 3, "test")
            .status()
            .message()
            .find("test: number 1 of run 1 is not finite") != absl::string_view::npos);
}

}  // namespace sparkv
