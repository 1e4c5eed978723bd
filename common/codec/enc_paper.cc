#include "common/codec/enc_paper.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/codec/dec_paper.h"
#include "common/codec/enc_block.h"
#include "common/codec/enc_halves.h"
#include "common/codec/enc_huffman.h"
#include "common/codec/enc_symbols.h"
#include "kernels/half.h"

namespace sparkv {
namespace {

constexpr int kLloydRounds = 32;
constexpr int kSplitRounds = 8;

int BitsOfLayer(const BlockPlace& place) {
  return 6 - static_cast<int>(uint64_t{3} * place.layer / std::max(place.layers, 1u));
}

// f16 bits in the order of their values.
uint16_t SortKey(uint16_t half) {
  return static_cast<uint16_t>((half & 0x8000) != 0 ? ~half : half | 0x8000);
}

// The distinct values of one head, ascending, with how many there are. Sums are whole numbers of
// 2^-24, the least f16, so that they are exact in any order.
class Values {
 public:
  Values(const uint16_t* halves, size_t n) : count_before_{0}, sum_before_{0} {
    if (n < (1 << 14)) {  // where counting 65536 keys takes longer than sorting
      std::vector<uint16_t> keys(n);
      std::transform(halves, halves + n, keys.begin(), SortKey);
      std::sort(keys.begin(), keys.end());
      for (size_t i = 0; i < n;) {
        const size_t end = std::upper_bound(keys.begin() + i, keys.end(), keys[i]) - keys.begin();
        Append(keys[i], static_cast<int64_t>(end - i));
        i = end;
      }
      return;
    }
    std::vector<uint32_t> counts(1 << 16);
    for (size_t i = 0; i < n; ++i) ++counts[SortKey(halves[i])];
    for (uint32_t key = 0; key < counts.size(); ++key) {
      if (counts[key] > 0) Append(static_cast<uint16_t>(key), counts[key]);
    }
  }
  size_t size() const { return values_.size(); }
  uint16_t key(size_t i) const { return keys_[i]; }
  double value(size_t i) const { return values_[i]; }
  double Mean(size_t begin, size_t end) const {
    return static_cast<double>(sum_before_[end] - sum_before_[begin]) /
           static_cast<double>(count_before_[end] - count_before_[begin]);
  }
  // The first value above x.
  size_t Above(double x) const {
    return std::upper_bound(values_.begin(), values_.end(), x) - values_.begin();
  }
  // The first value with at least i / n of all before it.
  size_t Quantile(size_t i, size_t n) const {
    const int64_t want = count_before_.back() * static_cast<int64_t>(i) / static_cast<int64_t>(n);
    return std::lower_bound(count_before_.begin(), count_before_.end(), want) -
           count_before_.begin();
  }

 private:
  void Append(uint16_t key, int64_t count) {
    const auto half = static_cast<uint16_t>((key & 0x8000) != 0 ? key & 0x7FFF : ~key);
    const double value = std::ldexp(double{kernels::HalfToFloat(half)}, 24);
    keys_.push_back(key);
    values_.push_back(value);
    count_before_.push_back(count_before_.back() + count);
    sum_before_.push_back(sum_before_.back() + static_cast<int64_t>(value) * count);
  }

  std::vector<uint16_t> keys_;
  std::vector<double> values_;  // in 2^-24
  std::vector<int64_t> count_before_;
  std::vector<int64_t> sum_before_;
};

// Cell i holds the distinct values [borders[i], borders[i + 1]).
using Borders = std::vector<size_t>;

// Means of the cells, ascending. A cell without values has the mean of the one below it, which
// makes Lloyd's next round give it the upper part of that cell.
std::vector<double> Means(const Values& values, const Borders& borders) {
  std::vector<double> means;
  double last = values.value(0);
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    if (borders[i] < borders[i + 1]) last = values.Mean(borders[i], borders[i + 1]);
    means.push_back(last);
  }
  return means;
}

Borders Lloyd(const Values& values, size_t cells) {
  Borders borders;
  for (size_t i = 0; i <= cells; ++i) borders.push_back(values.Quantile(i, cells));
  for (int round = 0; round < kLloydRounds; ++round) {
    const std::vector<double> means = Means(values, borders);
    Borders next = borders;
    for (size_t i = 1; i < cells; ++i) next[i] = values.Above((means[i - 1] + means[i]) / 2);
    if (next == borders) break;
    borders = next;
  }
  return borders;
}

Borders SplitCells(const Values& values, const Borders& borders) {
  Borders halves{0};
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    const size_t begin = borders[i];
    const size_t end = borders[i + 1];
    size_t middle = begin;
    if (begin < end) middle = values.Above(values.Mean(begin, end));
    for (int round = 0; round < kSplitRounds && middle > begin && middle < end; ++round) {
      const size_t next = values.Above((values.Mean(begin, middle) + values.Mean(middle, end)) / 2);
      if (next == middle) break;
      middle = next;
    }
    halves.push_back(std::min(std::max(middle, begin), end));
    halves.push_back(end);
  }
  return halves;
}

std::vector<std::string> Encode(const BlockInput& in) {
  const BlockShape& shape = in.shape;
  const size_t elements = shape.elements();
  const uint32_t head = shape.tokens * shape.head_dim;
  const int bits = BitsOfLayer(in.place);
  std::vector<uint8_t> codes(2 * elements);       // with the bits of all planes
  std::vector<uint16_t> codebooks[kPaperPlanes];  // [2][heads][2^(bits + plane)]
  for (size_t i = 0; i < size_t{2} * shape.kv_heads; ++i) {
    const uint16_t* from =
        i < shape.kv_heads ? in.k + i * head : in.v + (i - shape.kv_heads) * head;
    const Values values(from, head);
    Borders borders = Lloyd(values, size_t{1} << bits);
    for (int p = 0; p < kPaperPlanes; ++p) {
      if (p > 0) borders = SplitCells(values, borders);
      for (const double mean : Means(values, borders)) {
        codebooks[p].push_back(kernels::FloatToHalf(static_cast<float>(std::ldexp(mean, -24))));
      }
    }
    std::vector<uint8_t> code_of_key(1 << 16);
    for (size_t c = 0; c + 1 < borders.size(); ++c) {
      for (size_t j = borders[c]; j < borders[c + 1]; ++j) {
        code_of_key[values.key(j)] = static_cast<uint8_t>(c);
      }
    }
    for (uint32_t j = 0; j < head; ++j) codes[i * head + j] = code_of_key[SortKey(from[j])];
  }

  std::vector<uint8_t> symbols(2 * elements);
  std::vector<std::string> planes;
  for (int p = 0; p < kPaperPlanes; ++p) {
    ByteWriter out;
    WritePlaneTag(PaperDecoder()->info(), p, out);
    if (p == 0) out.Write<uint8_t>(static_cast<uint8_t>(bits));
    EncodeHalves(2 * shape.kv_heads, 1u << (bits + p), codebooks[p].data(), out);
    const int shift = kPaperPlanes - 1 - p;
    const int mask = p == 0 ? 0xFF : 1;
    for (size_t i = 0; i < 2 * elements; ++i) {
      symbols[i] = static_cast<uint8_t>((codes[i] >> shift) & mask);
    }
    if (p == 0) {
      EncodeHuffman(elements, bits, symbols.data(), out);
      EncodeHuffman(elements, bits, symbols.data() + elements, out);
    } else {
      EncodeSymbols(2 * shape.kv_heads, head, 1, symbols.data(), out);
    }
    planes.push_back(out.Take());
  }
  return planes;
}

class Encoder final : public BlockEncoder {
 public:
  const CodecInfo& info() const override { return PaperDecoder()->info(); }
  absl::StatusOr<std::vector<std::string>> EncodeBlock(const BlockInput& in) const override {
    RETURN_IF_ERROR(in.shape.Validate());
    RETURN_IF_ERROR(CheckFinite(info().name, in.shape, in.k, in.v));
    return Encode(in);
  }
};

}  // namespace

const BlockEncoder* PaperEncoder() {
  static const Encoder* const encoder = new Encoder;
  return encoder;
}

}  // namespace sparkv
