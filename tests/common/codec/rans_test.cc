// Case Q3 of the public faults list: edge inputs of the entropy coder. The decoding twins:
// tests/kernels/rans_decode_test.cc.
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "common/base/bytes.h"
#include "common/codec/dec_symbols.h"
#include "common/codec/enc_rans.h"
#include "common/codec/enc_symbols.h"
#include "kernels/rans_decode.h"
#include "tests/catch.h"

namespace sparkv {
namespace {

std::string Encode(uint32_t runs, uint32_t length, int bits, const std::vector<uint8_t>& symbols) {
  ByteWriter out;
  EncodeSymbols(runs, length, bits, symbols.data(), out);
  return out.Take();
}

absl::Status Decode(const std::string& bytes, uint32_t runs, uint32_t length, int bits,
                    std::vector<uint8_t>* out) {
  out->assign(size_t{runs} * length + 1, 0xEE);  // the last byte must stay
  ByteReader reader(AsBytes(bytes));
  absl::Status status =
      DecodeSymbols(reader, runs, length, bits, Combine::kReplace, "test", out->data());
  if (status.ok() && reader.remaining() != 0) status = absl::InternalError("bytes left");
  if (out->back() != 0xEE) status = absl::InternalError("wrote behind the end");
  out->pop_back();
  return status;
}

void CheckRoundTrip(uint32_t runs, uint32_t length, int bits, const std::vector<uint8_t>& symbols) {
  const std::string bytes = Encode(runs, length, bits, symbols);
  std::vector<uint8_t> back;
  REQUIRE_OK(Decode(bytes, runs, length, bits, &back));
  REQUIRE(back == symbols);
}

// Straight through the coder, whatever EncodeSymbols would choose.
void CheckRans(uint32_t runs, uint32_t length, uint32_t alphabet,
               const std::vector<uint8_t>& symbols) {
  std::vector<uint64_t> counts(alphabet);
  for (uint8_t s : symbols) ++counts[s];
  std::vector<uint32_t> frequencies(alphabet);
  NormalizeFrequencies(counts, frequencies);
  REQUIRE(std::accumulate(frequencies.begin(), frequencies.end(), 0u) == kRansFrequencySum);
  for (uint32_t s = 0; s < alphabet; ++s) REQUIRE((counts[s] > 0) == (frequencies[s] > 0));

  const std::vector<uint8_t> table_of_run(runs, 0);
  const RansOutput coded = RansEncode(symbols, length, table_of_run, frequencies, alphabet);
  std::vector<kernels::RansTable> tables(1);
  tables[0].Build(frequencies);
  kernels::RansInput in;
  in.tables = tables;
  in.table_of_run = table_of_run;
  in.length = length;
  in.states = {reinterpret_cast<const uint8_t*>(coded.states.data()), 4 * coded.states.size()};
  in.words = {reinterpret_cast<const uint8_t*>(coded.words.data()), 2 * coded.words.size()};
  std::vector<uint8_t> back(symbols.size());
  REQUIRE(kernels::RansDecode(in, back.data()));
  REQUIRE(back == symbols);
}

}  // namespace

TEST_CASE("rANS restores constant data, one symbol, and all 256 symbols once") {
  CheckRans(1, 1, 256, {0});
  CheckRans(1, 1, 256, {255});
  CheckRans(1, 128, 256, std::vector<uint8_t>(128, 0));
  CheckRans(1, 512, 256, std::vector<uint8_t>(512, 0));
  std::vector<uint8_t> all(256);
  std::iota(all.begin(), all.end(), uint8_t{0});
  CheckRans(1, 256, 256, all);
  CheckRans(256, 1, 256, all);
}

TEST_CASE("rANS keeps a rare symbol among 99.9 % of another") {
  for (size_t at : {size_t{0}, size_t{500}, size_t{999}}) {
    std::vector<uint8_t> data(1000, 7);
    data[at] = 200;
    CheckRans(1, 1000, 256, data);
  }
  std::vector<uint8_t> many(100000, 3);  // 1 in 100,000: below half of 1/4096
  many[77777] = 9;
  CheckRans(100, 1000, 16, many);
}

TEST_CASE("rANS restores every length from 1 to 300 and every number of runs") {
  std::mt19937 rng(5);
  for (uint32_t length = 1; length <= 300; ++length) {
    for (uint32_t runs : {1u, 3u}) {
      std::vector<uint8_t> data(size_t{runs} * length);
      for (uint8_t& s : data) s = static_cast<uint8_t>(std::min(rng() % 16, rng() % 16));
      CheckRans(runs, length, 16, data);
    }
  }
}

TEST_CASE("Frequencies are never rounded to 0 and sum to 4096") {
  std::mt19937 rng(9);
  for (int i = 0; i < 500; ++i) {
    std::vector<uint64_t> counts(256);
    const uint32_t present = 1 + rng() % 256;
    for (uint32_t k = 0; k < present; ++k) counts[rng() % 256] = 1 + rng() % 3;
    counts[rng() % 256] = uint64_t{rng()} << (rng() % 16);
    if (std::accumulate(counts.begin(), counts.end(), uint64_t{0}) == 0) counts[0] = 1;
    std::vector<uint32_t> f(256);
    NormalizeFrequencies(counts, f);
    CHECK(std::accumulate(f.begin(), f.end(), 0u) == kRansFrequencySum);
    for (size_t s = 0; s < 256; ++s) CHECK((counts[s] > 0) == (f[s] > 0));
  }
}

TEST_CASE("Symbol blocks restore all lengths 0..300, alphabets and distributions") {
  std::mt19937 rng(1);
  for (uint32_t length = 0; length <= 300; ++length) {
    const int bits = 1 + static_cast<int>(length % 8);
    const uint32_t alphabet = 1u << bits;
    const uint32_t runs = 1 + length % 5;
    std::vector<uint8_t> data(size_t{runs} * length);
    CheckRoundTrip(runs, length, bits, data);  // constant
    for (uint8_t& s : data) s = static_cast<uint8_t>(rng() % alphabet);
    CheckRoundTrip(runs, length, bits, data);  // uniform: raw
    for (uint8_t& s : data) s = static_cast<uint8_t>(rng() % 50 == 0 ? rng() % alphabet : 1);
    CheckRoundTrip(runs, length, bits, data);  // skewed: rANS
  }
}

TEST_CASE("Symbol blocks choose the mode that is smallest") {
  std::mt19937 rng(2);
  std::vector<uint8_t> data(64 * 1024, 5);
  CHECK(Encode(64, 1024, 8, data).size() == 2);  // constant
  for (uint8_t& s : data) s = static_cast<uint8_t>(rng());
  CHECK(Encode(64, 1024, 8, data).size() == 1 + data.size());  // raw
  // Runs of four kinds, each nearly constant: tables per kind cost well below one shared table (2
  // bits).
  for (size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<uint8_t>(rng() % 100 == 0 ? rng() % 4 : (i / 1024) % 4);
  }
  CHECK(Encode(64, 1024, 2, data).size() < data.size() * 2 / 8 / 8);
  CheckRoundTrip(64, 1024, 2, data);
}

TEST_CASE("A symbol block refuses every truncation and never reads behind its end") {
  std::mt19937 rng(3);
  std::vector<uint8_t> data(4 * 300);
  for (uint8_t& s : data) s = static_cast<uint8_t>(rng() % 20 == 0 ? rng() % 16 : 3);
  const std::string bytes = Encode(4, 300, 4, data);
  REQUIRE(bytes[0] == 2);  // rANS
  std::vector<uint8_t> back;
  for (size_t n = 0; n < bytes.size(); ++n) {
    // A copy of just these bytes, so that AddressSanitizer sees a read beyond.
    const std::string cut(bytes, 0, n);
    CHECK(Decode(cut, 4, 300, 4, &back).code() == absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("A symbol block refuses a broken table, table number, state and word count") {
  const auto refuse = [](ByteWriter& w, uint32_t runs, uint32_t length) {
    std::vector<uint8_t> out(size_t{runs} * length);
    const std::string bytes = w.Take();
    ByteReader reader(AsBytes(bytes));
    const absl::Status s =
        DecodeSymbols(reader, runs, length, 1, Combine::kReplace, "test", out.data());
    INFO(s.ToString());
    CHECK(s.code() == absl::StatusCode::kDataLoss);
  };
  const auto table = [](ByteWriter& w) {
    // One table of two symbols with frequencies 2048: 4 bits 12, 11 bits 0, twice = 30 bits + 2
    // filling.
    w.Write<uint8_t>(2);
    w.Write<uint8_t>(0);
    w.Write<uint32_t>(12u | 12u << 15);
  };
  ByteWriter w;
  w.Write<uint8_t>(3);  // no such mode
  refuse(w, 1, 4);
  w = {};
  w.Write<uint8_t>(1);
  w.Write<uint8_t>(2);  // constant beyond the alphabet
  refuse(w, 1, 4);
  w = {};
  w.Write<uint8_t>(0);
  w.Write<uint8_t>(0x10);  // filling bits of raw symbols
  refuse(w, 1, 4);
  w = {};
  w.Write<uint8_t>(2);
  w.Write<uint8_t>(0);
  w.Write<uint32_t>(12u | 11u << 15);  // sums to 3072
  w.Write<uint32_t>(0);
  w.Write<uint32_t>(65536);
  refuse(w, 1, 1);
  w = {};
  w.Write<uint8_t>(2);
  w.Write<uint8_t>(64);  // 65 tables
  refuse(w, 1, 1);
  w = {};
  table(w);
  w.Write<uint32_t>(0);
  w.Write<uint32_t>(65535);  // state below the bound
  refuse(w, 1, 1);
  w = {};
  table(w);
  w.Write<uint32_t>(0x7FFFFFFF);  // more words than bytes
  w.Write<uint32_t>(65536);
  refuse(w, 1, 1);
  w = {};
  table(w);
  w.Write<uint32_t>(0);
  w.Write<uint32_t>(65536);  // decodes a symbol, but then needs a word
  refuse(w, 1, 1);
  w = {};
  table(w);
  w.Write<uint32_t>(0);
  w.Write<uint32_t>(131072);  // ends at 65536: the one right stream
  std::vector<uint8_t> out(1, 9);
  const std::string good = w.Take();
  ByteReader reader(AsBytes(good));
  REQUIRE_OK(DecodeSymbols(reader, 1, 1, 1, Combine::kReplace, "test", out.data()));
  CHECK(out[0] == 0);
}

}  // namespace sparkv
