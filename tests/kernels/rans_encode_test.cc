// Each twin against a coder written here from common/codec/FORMAT.md section 3, by division.
#include "kernels/rans_encode.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace sparkv::kernels {
namespace {

struct Coded {
  std::vector<uint32_t> states;
  std::vector<uint16_t> words;  // the last put first
};

Coded Divide(const std::vector<RansSymbol>& table, const std::vector<uint8_t>& in,
             std::vector<uint32_t> states) {
  Coded out;
  for (size_t j = in.size(); j-- > 0;) {
    const RansSymbol& s = table[in[j]];
    uint64_t x = states[j % kRansLanes];
    if (x >= uint64_t{s.frequency} << 20) {
      out.words.insert(out.words.begin(), static_cast<uint16_t>(x));
      x >>= 16;
    }
    states[j % kRansLanes] =
        static_cast<uint32_t>(((x / s.frequency) << 12) + x % s.frequency + s.start);
  }
  out.states = std::move(states);
  return out;
}

template <typename PutRun>
void CheckTwin(PutRun put, const std::vector<RansSymbol>& table, const std::vector<uint8_t>& in,
               const std::vector<uint32_t>& states) {
  const Coded want = Divide(table, in, states);
  std::vector<uint32_t> got = states;
  // One word behind the end must stay, and what lies before the slack.
  std::vector<uint16_t> words(1 + kRansPutSlack + in.size() + 1, 0xABCD);
  uint16_t* next = &words.back();
  put(table.data(), static_cast<uint32_t>(table.size()), in.data(),
      static_cast<uint32_t>(in.size()), got.data(), &next);
  CHECK(words.front() == 0xABCD);
  CHECK(words.back() == 0xABCD);
  REQUIRE(std::vector<uint16_t>(next, &words.back()) == want.words);
  CHECK(got == want.states);
}

std::vector<RansSymbol> TableOf(const std::vector<uint32_t>& frequencies) {
  std::vector<RansSymbol> out;
  uint32_t start = 0;
  for (const uint32_t f : frequencies) {
    out.emplace_back(f, start);
    start += f;
  }
  REQUIRE(start == kRansFrequencySum);
  return out;
}

}  // namespace

TEST_CASE("rANS encoding twins give the words and states of plain division") {
  std::mt19937 rng(7);
  const std::vector<std::vector<uint32_t>> tables = {
      {4096},       {1, 4095},       {4095, 1},           {2048, 2048}, {1365, 1366, 1365},
      {0, 0, 4096}, {1, 2, 4093, 0}, {3, 5, 7, 11, 4070}, {},           {}};
  for (size_t t = 0; t < tables.size(); ++t) {
    std::vector<uint32_t> frequencies = tables[t];
    if (frequencies.empty()) {  // random ones: of 8 symbols, of 256
      frequencies.assign(t % 2 == 0 ? 8 : 256, 1);
      for (auto left = kRansFrequencySum - static_cast<uint32_t>(frequencies.size()); left > 0;) {
        const uint32_t share = std::min<uint32_t>(left, 1 + rng() % 300);
        frequencies[rng() % frequencies.size()] += share;
        left -= share;
      }
    }
    const std::vector<RansSymbol> table = TableOf(frequencies);
    std::vector<uint8_t> present;
    for (size_t s = 0; s < frequencies.size(); ++s) {
      if (frequencies[s] > 0) present.push_back(static_cast<uint8_t>(s));
    }
    for (const uint32_t length : {1u, 2u, 8u, 31u, 32u, 33u, 64u, 96u, 100u, 1024u, 5000u}) {
      CAPTURE(t, length);
      std::vector<uint8_t> in(length);
      for (uint8_t& s : in) s = present[rng() % present.size()];
      std::vector<uint32_t> states(kRansLanes);
      for (uint32_t& x : states) x = std::max<uint32_t>(kRansLowerBound, rng());
      CheckTwin(RansPutRun, table, in, states);
      CheckTwin(RansPutRunScalar, table, in, states);
    }
  }
}

TEST_CASE("rANS encoding twins divide exactly next to the multiples of every frequency") {
  std::mt19937 rng(8);
  for (uint32_t f = 1; f < kRansFrequencySum; ++f) {
    const std::vector<RansSymbol> table = TableOf({f, kRansFrequencySum - f});
    // States that take up symbol 0 without giving off a word: below f * 2^20, quotients of all
    // sizes.
    std::vector<uint32_t> states(kRansLanes);
    for (uint32_t i = 0; i < kRansLanes; ++i) {
      const uint64_t most = (uint64_t{f} << 20) - 1;
      uint64_t quotient = i < 2 ? (uint64_t{1} << 20) - 1 - i : rng() >> (12 + i % 4);
      uint64_t x = quotient * f + (i % 3 == 0 ? 0 : i % 3 == 1 ? f - 1 : rng() % f);
      x = std::min(most, std::max<uint64_t>(x, kRansLowerBound));
      states[i] = static_cast<uint32_t>(x);
    }
    const std::vector<uint8_t> in(kRansLanes, 0);
    CheckTwin(RansPutRun, table, in, states);
    CheckTwin(RansPutRunScalar, table, in, states);
  }
}

}  // namespace sparkv::kernels
