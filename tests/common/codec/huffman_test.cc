#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "common/base/bytes.h"
#include "common/codec/dec_huffman.h"
#include "common/codec/enc_huffman.h"
#include "common/codec/huffman_common.h"
#include "tests/catch.h"

namespace sparkv {
namespace {

std::string Encode(const std::vector<uint8_t>& symbols, int bits) {
  ByteWriter out;
  EncodeHuffman(symbols.size(), bits, symbols.data(), out);
  return out.Take();
}

absl::Status Decode(const std::string& bytes, size_t n, int bits, std::vector<uint8_t>* out) {
  out->assign(n + 1, 0xEE);  // the last byte must stay
  ByteReader reader(AsBytes(bytes));
  absl::Status status = DecodeHuffman(reader, n, bits, "test", out->data());
  if (status.ok() && reader.remaining() != 0) status = absl::InternalError("bytes left");
  if (out->back() != 0xEE) status = absl::InternalError("wrote behind the end");
  out->pop_back();
  return status;
}

}  // namespace

TEST_CASE("Huffman: round trip of every alphabet and many lengths") {
  std::mt19937 rng(1);
  for (int bits = 1; bits <= kMaxHuffmanBits; ++bits) {
    for (size_t n = 1; n < 200; n += n < 40 ? 1 : 37) {
      std::vector<uint8_t> symbols(n), back;
      for (uint8_t& s : symbols) s = static_cast<uint8_t>((rng() & rng()) % (1u << bits));
      REQUIRE_OK(Decode(Encode(symbols, bits), n, bits, &back));
      REQUIRE(back == symbols);
    }
  }
}

TEST_CASE("Huffman: within one bit of the entropy, and optimal against known trees") {
  std::vector<uint8_t> lengths(5);
  HuffmanLengths(std::vector<uint64_t>{15, 7, 6, 6, 5}, lengths);
  CHECK(lengths == std::vector<uint8_t>{1, 3, 3, 3, 3});
  HuffmanLengths(std::vector<uint64_t>{1, 0, 1, 2, 4}, lengths);
  CHECK(lengths == std::vector<uint8_t>{3, 0, 3, 2, 1});
  std::mt19937 rng(3);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<uint64_t> counts(64);
    for (uint64_t& c : counts) c = rng() >> (rng() % 32);
    lengths.assign(64, 0);
    HuffmanLengths(counts, lengths);
    const double total =
        static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
    double entropy = 0, mean = 0;
    uint32_t kraft = 0;
    for (size_t i = 0; i < 64; ++i) {
      REQUIRE(lengths[i] <= kMaxHuffmanLength);
      REQUIRE((lengths[i] == 0) == (counts[i] == 0));
      if (counts[i] == 0) continue;
      kraft += kHuffmanKraftSum >> lengths[i];
      const double p = static_cast<double>(counts[i]) / total;
      entropy -= p * std::log2(p);
      mean += p * lengths[i];
    }
    CHECK(kraft == kHuffmanKraftSum);
    CHECK(mean < entropy + 1);
  }
}

TEST_CASE("Huffman: counts whose tree is too deep get codes of at most 12 bits") {
  std::vector<uint64_t> fibonacci{1, 1};
  while (fibonacci.size() < 64) {
    fibonacci.push_back(std::min<uint64_t>(fibonacci.end()[-1] + fibonacci.end()[-2], 1 << 26));
  }
  std::vector<uint8_t> lengths(64);
  HuffmanLengths(fibonacci, lengths);
  CHECK(*std::max_element(lengths.begin(), lengths.end()) <= kMaxHuffmanLength);
  std::vector<uint8_t> symbols, back;
  for (uint8_t s = 0; s < 20; ++s) symbols.insert(symbols.end(), size_t{1} << s, s);
  REQUIRE_OK(Decode(Encode(symbols, 6), symbols.size(), 6, &back));
  CHECK(back == symbols);
}

TEST_CASE("Huffman: a constant takes two bytes") {
  std::vector<uint8_t> back;
  const std::string bytes = Encode(std::vector<uint8_t>(1000, 9), 4);
  CHECK(bytes == std::string("\x01\x09", 2));
  REQUIRE_OK(Decode(bytes, 1000, 4, &back));
  CHECK(back == std::vector<uint8_t>(1000, 9));
}

TEST_CASE("Huffman refuses codes that are not complete, truncations, and what is left over") {
  const auto why = [](const std::string& bytes, size_t n, int bits) {
    std::vector<uint8_t> back;
    const absl::Status s = Decode(bytes, n, bits, &back);
    CHECK(s.code() == absl::StatusCode::kDataLoss);
    return std::string(s.message());
  };
  // Two bits: lengths 1, 2, 2, 0; the codes 0, 10, 11; the symbols 0 1 2 0 take six bits.
  const std::string good("\x02\x21\x02\x01\x00\x00\x00\x1a", 8);
  std::vector<uint8_t> back;
  REQUIRE_OK(Decode(good, 4, 2, &back));
  CHECK(back == std::vector<uint8_t>{0, 1, 2, 0});
  CHECK(Encode(back, 2) == good);

  std::string bad = good;
  bad[2] = 0x12;
  CHECK(why(bad, 4, 2).find("over-subscribed") != std::string::npos);
  bad[2] = 0x00;
  CHECK(why(bad, 4, 2).find("incomplete") != std::string::npos);
  bad[1] = 0x01;  // one symbol alone
  CHECK(why(bad, 4, 2).find("incomplete") != std::string::npos);
  bad[1] = bad[2] = 0;
  CHECK(why(bad, 4, 2).find("incomplete") != std::string::npos);
  bad[2] = 0x0D;
  CHECK(why(bad, 4, 2).find("at most 12") != std::string::npos);
  bad = good;
  bad[0] = 0;
  CHECK(why(bad, 4, 2).find("mode 0") != std::string::npos);
  bad = good;
  bad[7] = 0x5a;
  CHECK(why(bad, 4, 2).find("filling bits") != std::string::npos);
  CHECK(why(good, 40, 2).find("cut short") != std::string::npos);
  bad = good + '\0';
  bad[3] = 2;
  CHECK(why(bad, 4, 2).find("bytes behind") != std::string::npos);
  for (size_t n = 0; n < good.size(); ++n) why(good.substr(0, n), 4, 2);
  CHECK(why(std::string("\x01\x04", 2), 4, 2).find("symbol 4") != std::string::npos);
}

}  // namespace sparkv
