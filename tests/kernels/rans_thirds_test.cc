// Each twin against an encoder written here from common/codec/FORMAT.md section 3.1, on streams
// that are right and streams that are not. (The codec's own encoder: tests/common/codec.)
#include "kernels/rans_thirds.h"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "kernels/rans_constants.h"
#include "tests/catch.h"

namespace sparkv::kernels {
namespace {

struct Stream {
  uint32_t length = 0;
  std::vector<ThirdsModel> models;  // [runs]
  std::vector<int16_t> coarse;      // [runs][length]
  std::vector<int16_t> fine;
  std::vector<uint32_t> states;
  std::vector<uint16_t> words;
};

struct Part {
  uint32_t start = 0, frequency = 0;
};

// The slots of the step from coarse to fine.
Part PartOf(const ThirdsModel& m, int coarse, int fine) {
  const int change = fine - 3 * coarse;
  if (coarse == 0) {
    const uint32_t one = m.zero_to_one;
    if (change == 1) return {0, one};
    if (change == -1) return {one, one};
    return {2 * one, kRansFrequencySum - 2 * one};
  }
  const int outward = coarse > 0 ? change : -change;
  if (outward == -1) return {0, m.inward};
  if (outward == 0) return {m.inward, m.same};
  return {uint32_t{m.inward} + m.same, kRansFrequencySum - m.inward - m.same};
}

// The decoder's steps backwards, from the last value to the first, by division.
void Encode(Stream* s) {
  s->states.assign(RansLanes(s->length), kRansLowerBound);
  s->words.clear();
  for (size_t i = s->coarse.size(); i-- > 0;) {
    const Part p = PartOf(s->models[i / s->length], s->coarse[i], s->fine[i]);
    uint32_t& x = s->states[i % s->length % kRansLanes];
    if (x >= uint64_t{p.frequency} << 20) {
      s->words.push_back(static_cast<uint16_t>(x));
      x >>= 16;
    }
    x = ((x / p.frequency) << 12) + x % p.frequency + p.start;
  }
  std::reverse(s->words.begin(), s->words.end());
}

ThirdsModel RandomModel(std::mt19937& rng) {
  ThirdsModel m;
  m.zero_to_one = static_cast<uint16_t>(rng() % 4 == 0 ? 0 : rng() % 2049);
  m.inward = static_cast<uint16_t>(1 + rng() % 4094);
  m.same = static_cast<uint16_t>(1 + rng() % (4095u - m.inward));
  return m;
}

Stream RandomStream(std::mt19937& rng, uint32_t runs, uint32_t length, int most) {
  Stream s;
  s.length = length;
  for (uint32_t r = 0; r < runs; ++r) s.models.push_back(RandomModel(rng));
  for (size_t i = 0; i < size_t{runs} * length; ++i) {
    const ThirdsModel& m = s.models[i / length];
    const int b = rng() % 2 == 0 ? 0 : static_cast<int>(rng() % (2u * most + 1)) - most;
    const uint32_t slot = rng() % kRansFrequencySum;
    int change = 0;
    for (const int c : {-1, 0, 1}) {
      const Part p = PartOf(m, b, 3 * b + c);
      if (slot >= p.start && slot < p.start + p.frequency) change = c;
    }
    s.coarse.push_back(static_cast<int16_t>(b));
    s.fine.push_back(static_cast<int16_t>(3 * b + change));
  }
  Encode(&s);
  return s;
}

struct Result {
  bool ok = false;
  std::vector<int16_t> values;
};

// The input is copied to blocks of just its size, so that AddressSanitizer sees a read beyond.
template <typename Twin>
Result Decode(Twin twin, const Stream& s) {
  const size_t state_bytes = 4 * s.states.size(), word_bytes = 2 * s.words.size();
  const auto states = std::make_unique<uint8_t[]>(state_bytes);
  const auto words = std::make_unique<uint8_t[]>(word_bytes);
  std::copy_n(reinterpret_cast<const uint8_t*>(s.states.data()), state_bytes, states.get());
  std::copy_n(reinterpret_cast<const uint8_t*>(s.words.data()), word_bytes, words.get());
  constexpr size_t kGuard = 32;
  std::vector<int16_t> values(s.coarse.size() + 2 * kGuard, int16_t{12345});
  std::copy(s.coarse.begin(), s.coarse.end(), values.begin() + kGuard);
  Result r;
  r.ok = twin({s.models, s.length, {states.get(), state_bytes}, {words.get(), word_bytes}},
              values.data() + kGuard);
  const auto untouched = [](int16_t v) { return v == 12345; };
  REQUIRE(std::all_of(values.begin(), values.begin() + kGuard, untouched));
  REQUIRE(std::all_of(values.end() - kGuard, values.end(), untouched));
  r.values.assign(values.begin() + kGuard, values.end() - kGuard);
  return r;
}

void CheckDecodes(const Stream& s) {
  const Result scalar = Decode(RansThirdsScalar, s);
  REQUIRE(scalar.ok);
  REQUIRE(scalar.values == s.fine);
  const Result fast = Decode(RansThirds, s);
  REQUIRE(fast.ok);
  REQUIRE(fast.values == s.fine);
}

// True when the stream was refused.
bool CheckSameVerdict(const Stream& s) {
  const Result scalar = Decode(RansThirdsScalar, s);
  const Result fast = Decode(RansThirds, s);
  REQUIRE(scalar.ok == fast.ok);
  if (scalar.ok) REQUIRE(scalar.values == fast.values);
  return !scalar.ok;
}

}  // namespace

TEST_CASE("the THIRDS twins restore every length and magnitude") {
  std::mt19937 rng(1);
  for (uint32_t length = 1; length <= 100; ++length) {
    for (const int most : {1, 3, 404, 10922}) {
      CAPTURE(length, most);
      CheckDecodes(RandomStream(rng, 7, length, most));
    }
  }
  for (const uint32_t length : {127u, 128u, 1000u, 1024u}) {
    CheckDecodes(RandomStream(rng, 20, length, 404));
  }
}

TEST_CASE("the THIRDS twins find the way of every slot, of zeros and of both signs") {
  std::mt19937 rng(2);
  for (int round = 0; round < 20; ++round) {
    const ThirdsModel m = RandomModel(rng);
    for (const int b : {0, 1, -1, 10922, -10922}) {
      for (uint32_t slot = 0; slot < kRansFrequencySum; slot += kRansLanes) {
        Stream s;
        s.length = kRansLanes;
        s.models = {m};
        for (uint32_t i = 0; i < kRansLanes; ++i) {
          for (const int c : {-1, 0, 1}) {
            const Part p = PartOf(m, b, 3 * b + c);
            if (slot + i < p.start || slot + i >= p.start + p.frequency) continue;
            s.coarse.push_back(static_cast<int16_t>(b));
            s.fine.push_back(static_cast<int16_t>(3 * b + c));
          }
        }
        REQUIRE(s.fine.size() == kRansLanes);
        Encode(&s);
        CheckDecodes(s);
      }
    }
  }
}

TEST_CASE("the THIRDS twins take no word at the lower bound itself") {
  // Half the slots each: a way halves the state, so that every 16th leaves exactly the bound, also
  // far from the end, where a fast twin works on whole groups.
  Stream s;
  s.length = kRansLanes * 16 * 4;
  s.models = {{2048, 2048, 2047}, {2048, 2048, 2047}};
  s.coarse.assign(2 * s.length, 0);
  s.fine.assign(2 * s.length, 1);
  Encode(&s);
  REQUIRE(s.words.size() == kRansLanes * 8);
  CheckDecodes(s);
  s.coarse.assign(2 * s.length, -5);  // the same by the model of other values
  s.fine.assign(2 * s.length, -14);
  Encode(&s);
  REQUIRE(s.words.size() == kRansLanes * 8);
  CheckDecodes(s);
}

TEST_CASE("the THIRDS twins refuse streams cut short, with words left over, or of other states") {
  std::mt19937 rng(4);
  for (const uint32_t length : {1u, 31u, 32u, 33u, 96u, 100u}) {
    CAPTURE(length);
    const Stream good = RandomStream(rng, 9, length, 20);
    CheckDecodes(good);
    for (size_t cut = 1; cut <= good.words.size(); ++cut) {
      Stream s = good;
      s.words.resize(s.words.size() - cut);
      CHECK(CheckSameVerdict(s));
    }
    for (const size_t more : {size_t{1}, size_t{8}, size_t{40}, size_t{200}}) {
      Stream s = good;
      s.words.resize(s.words.size() + more);
      CHECK(CheckSameVerdict(s));
    }
    for (size_t lane = 0; lane < good.states.size(); ++lane) {
      for (const uint32_t state : {kRansLowerBound - 1, 0u}) {
        Stream s = good;
        s.states[lane] = state;
        CHECK(CheckSameVerdict(s));
      }
    }
    Stream s = good;
    s.states.push_back(kRansLowerBound);
    CHECK(CheckSameVerdict(s));
    s.states.resize(good.states.size() - 1);
    CHECK(CheckSameVerdict(s));
  }
}

TEST_CASE("the THIRDS twins agree on every damaged stream") {
  std::mt19937 rng(5);
  size_t refused = 0;
  for (int round = 0; round < 3000; ++round) {
    Stream s = RandomStream(rng, 1 + rng() % 6, 1 + rng() % 100, 30);
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
