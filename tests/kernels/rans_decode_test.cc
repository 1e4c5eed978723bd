// Each twin against an encoder written here from common/codec/FORMAT.md section 3, on streams that
// are right and streams that are not. (The codec's own encoder: tests/common/codec/rans_test.cc.)
#include "kernels/rans_decode.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace sparkv::kernels {
namespace {

struct Stream {
  uint32_t length = 0;
  std::vector<std::vector<uint32_t>> frequencies;  // [tables][alphabet]
  std::vector<uint8_t> table_of_run;
  std::vector<uint8_t> symbols;  // [runs][length]
  std::vector<uint32_t> states;
  std::vector<uint16_t> words;
};

// The decoder's steps backwards, from the last symbol to the first, by division.
void Encode(Stream* s) {
  s->states.assign(RansLanes(s->length), kRansLowerBound);
  for (size_t i = s->symbols.size(); i-- > 0;) {
    const auto& f = s->frequencies[s->table_of_run[i / s->length]];
    const uint32_t symbol = s->symbols[i];
    const uint32_t start = std::accumulate(f.begin(), f.begin() + symbol, 0u);
    uint32_t& x = s->states[i % s->length % kRansLanes];
    if (x >= uint64_t{f[symbol]} << 20) {
      s->words.push_back(static_cast<uint16_t>(x));
      x >>= 16;
    }
    x = ((x / f[symbol]) << 12) + x % f[symbol] + start;
  }
  std::reverse(s->words.begin(), s->words.end());
}

// Frequencies of a random kind: even, skewed, few present, or (often) a single symbol.
std::vector<uint32_t> RandomFrequencies(std::mt19937& rng, uint32_t alphabet) {
  std::vector<uint32_t> f(alphabet);
  const uint32_t kind = rng() % 5;
  if (kind == 0) {
    f[rng() % alphabet] = kRansFrequencySum;
    return f;
  }
  const uint32_t present = kind == 1 ? 2 : alphabet;
  for (uint32_t k = 0; k < present; ++k) f[kind == 1 ? rng() % alphabet : k] = 1;
  uint32_t left = kRansFrequencySum - std::accumulate(f.begin(), f.end(), 0u);
  for (uint32_t& each : f) {
    if (each == 0) continue;
    const uint32_t more = kind == 2 ? left / alphabet : rng() % (left + 1);
    each += more;
    left -= more;
  }
  *std::max_element(f.begin(), f.end()) += left;
  return f;
}

Stream RandomStream(std::mt19937& rng, uint32_t alphabet, uint32_t tables, uint32_t runs,
                    uint32_t length) {
  Stream s;
  s.length = length;
  for (uint32_t t = 0; t < tables; ++t) s.frequencies.push_back(RandomFrequencies(rng, alphabet));
  for (uint32_t r = 0; r < runs; ++r) {
    s.table_of_run.push_back(static_cast<uint8_t>(r < tables ? r : rng() % tables));
    const auto& f = s.frequencies[s.table_of_run.back()];
    for (uint32_t i = 0; i < length; ++i) {
      uint32_t slot = rng() % kRansFrequencySum, symbol = 0;
      while (slot >= f[symbol]) slot -= f[symbol++];
      s.symbols.push_back(static_cast<uint8_t>(symbol));
    }
  }
  Encode(&s);
  return s;
}

struct Result {
  bool ok = false;
  std::vector<uint8_t> out;
};

// Decodes over a known background with guards on both sides; the input is copied to blocks of just
// its size, so that AddressSanitizer sees a read beyond.
template <typename Twin>
Result Decode(Twin twin, const Stream& s, int shift) {
  std::vector<RansTable> tables(s.frequencies.size());
  for (size_t t = 0; t < tables.size(); ++t) tables[t].Build(s.frequencies[t]);
  const size_t state_bytes = 4 * s.states.size(), word_bytes = 2 * s.words.size();
  const auto states = std::make_unique<uint8_t[]>(state_bytes);
  const auto words = std::make_unique<uint8_t[]>(word_bytes);
  std::copy_n(reinterpret_cast<const uint8_t*>(s.states.data()), state_bytes, states.get());
  std::copy_n(reinterpret_cast<const uint8_t*>(s.words.data()), word_bytes, words.get());
  RansInput in;
  in.tables = tables;
  in.table_of_run = s.table_of_run;
  in.length = s.length;
  in.states = {states.get(), state_bytes};
  in.words = {words.get(), word_bytes};
  in.shift = shift;
  constexpr size_t kGuard = 64;
  std::vector<uint8_t> out(s.symbols.size() + 2 * kGuard);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(i * 37 + 11);
  const std::vector<uint8_t> before = out;
  Result r;
  r.ok = twin(in, out.data() + kGuard);
  REQUIRE(std::equal(out.begin(), out.begin() + kGuard, before.begin()));
  REQUIRE(std::equal(out.end() - kGuard, out.end(), before.end() - kGuard));
  r.out.assign(out.begin() + kGuard, out.end() - kGuard);
  return r;
}

void CheckDecodes(const Stream& s, int shift) {
  std::vector<uint8_t> want(s.symbols.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const auto old = static_cast<uint8_t>((i + 64) * 37 + 11);
    want[i] = static_cast<uint8_t>(shift == 0 ? s.symbols[i] : (old << shift) | s.symbols[i]);
  }
  const Result scalar = Decode(RansDecodeScalar, s, shift);
  REQUIRE(scalar.ok);
  REQUIRE(scalar.out == want);
  const Result fast = Decode(RansDecode, s, shift);
  REQUIRE(fast.ok);
  REQUIRE(fast.out == want);
}

// True when the stream was refused.
bool CheckSameVerdict(const Stream& s) {
  const Result scalar = Decode(RansDecodeScalar, s, 0);
  const Result fast = Decode(RansDecode, s, 0);
  REQUIRE(scalar.ok == fast.ok);
  if (scalar.ok) REQUIRE(scalar.out == fast.out);
  return !scalar.ok;
}

}  // namespace

TEST_CASE("the rANS twins restore every length, alphabet and shift") {
  std::mt19937 rng(1);
  for (uint32_t length = 1; length <= 100; ++length) {
    for (uint32_t alphabet : {1u, 2u, 3u, 8u, 15u, 16u, 17u, 64u, 256u}) {
      CAPTURE(length, alphabet);
      const Stream s = RandomStream(rng, alphabet, 3, 7, length);
      CheckDecodes(s, 0);
      CheckDecodes(s, 1 + static_cast<int>((length + alphabet) % 8));
    }
  }
  for (uint32_t length : {127u, 128u, 1000u, 1024u}) {
    for (uint32_t alphabet : {16u, 256u}) {
      for (int shift = 0; shift <= 8; ++shift) {
        CheckDecodes(RandomStream(rng, alphabet, 5, 20, length), shift);
      }
    }
  }
}

TEST_CASE("the rANS twins restore runs of 1 to 64 tables") {
  std::mt19937 rng(2);
  for (uint32_t tables = 1; tables <= 64; ++tables) {
    CAPTURE(tables);
    CheckDecodes(RandomStream(rng, 16, tables, tables + 10, 70), 0);
    CheckDecodes(RandomStream(rng, 100, tables, tables + 10, 70), 4);
  }
}

TEST_CASE("the rANS twins find the symbol of every slot") {
  std::mt19937 rng(3);
  for (uint32_t alphabet : {16u, 256u}) {
    for (int round = 0; round < 10; ++round) {
      // A state per slot, 32 at a time; the words after them are whatever they are.
      const std::vector<uint32_t> f = RandomFrequencies(rng, alphabet);
      for (uint32_t slot = 0; slot < kRansFrequencySum; slot += kRansLanes) {
        Stream s;
        s.length = kRansLanes;
        s.frequencies = {f};
        s.table_of_run = {0};
        for (uint32_t i = 0; i < kRansLanes; ++i) {
          uint32_t left = slot + i, symbol = 0;
          while (left >= f[symbol]) left -= f[symbol++];
          s.symbols.push_back(static_cast<uint8_t>(symbol));
        }
        Encode(&s);
        CheckDecodes(s, 0);
      }
    }
  }
}

TEST_CASE("the rANS twins take no word at the lower bound itself") {
  // Half the slots each: a symbol 0 halves the state, so that every 16th leaves exactly the bound,
  // also far from the end, where a fast twin works on whole groups.
  for (uint32_t alphabet : {2u, 17u}) {
    Stream s;
    s.length = kRansLanes * 16 * 4;
    s.frequencies = {std::vector<uint32_t>(alphabet)};
    s.frequencies[0][0] = s.frequencies[0][1] = kRansFrequencySum / 2;
    s.table_of_run = {0, 0};
    s.symbols.assign(2 * s.length, 0);
    Encode(&s);
    REQUIRE(s.words.size() == kRansLanes * 8);
    CheckDecodes(s, 0);
  }
}

TEST_CASE("the rANS twins refuse streams cut short, with words left over, or of other states") {
  std::mt19937 rng(4);
  for (uint32_t length : {1u, 31u, 32u, 33u, 96u, 100u}) {
    for (uint32_t alphabet : {16u, 200u}) {
      CAPTURE(length, alphabet);
      Stream good = RandomStream(rng, alphabet, 4, 9, length);
      CheckDecodes(good, 0);
      for (size_t cut = 1; cut <= good.words.size(); ++cut) {
        Stream s = good;
        s.words.resize(s.words.size() - cut);
        CHECK(CheckSameVerdict(s));
      }
      for (size_t more : {size_t{1}, size_t{8}, size_t{40}, size_t{200}}) {
        Stream s = good;
        s.words.resize(s.words.size() + more);
        CHECK(CheckSameVerdict(s));
      }
      for (size_t lane = 0; lane < good.states.size(); ++lane) {
        Stream s = good;
        s.states[lane] = kRansLowerBound - 1;
        CHECK(CheckSameVerdict(s));
        s.states[lane] = 0;
        CHECK(CheckSameVerdict(s));
      }
      Stream s = good;
      s.states.push_back(kRansLowerBound);
      CHECK(CheckSameVerdict(s));
      s.states.resize(good.states.size() - 1);
      CHECK(CheckSameVerdict(s));
    }
  }
}

TEST_CASE("the rANS twins agree on every damaged stream") {
  std::mt19937 rng(5);
  size_t refused = 0;
  for (int round = 0; round < 3000; ++round) {
    const uint32_t alphabet = round % 2 == 0 ? 16 : 256;
    const uint32_t tables = 1 + rng() % 4, runs = 1 + rng() % 6, length = 1 + rng() % 100;
    Stream s = RandomStream(rng, alphabet, tables, runs, length);
    for (uint32_t k = 1 + rng() % 3; k > 0; --k) {
      if (!s.words.empty() && rng() % 2 == 0) {
        s.words[rng() % s.words.size()] ^= static_cast<uint16_t>(1 + rng() % 65535);
      } else if (rng() % 4 == 0) {
        s.states[rng() % s.states.size()] = 0xFFFFFFFF;
      } else {
        s.states[rng() % s.states.size()] ^= 1u << (rng() % 32);
      }
    }
    refused += CheckSameVerdict(s) ? 1 : 0;
  }
  CHECK(refused > 2900);  // what is left are flips that undid each other
}

}  // namespace sparkv::kernels
