#include "common/codec/enc_generic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/codec/dec_generic.h"
#include "common/codec/enc_block.h"
#include "common/codec/enc_symbols.h"
#include "kernels/half.h"

namespace sparkv {
namespace {

// The first tokens of a context are attention sinks: nearly all of the output's sensitivity to
// errors in K is theirs (exact: 3 times less KL on SmolLM2). A block does not know whether its
// column is the context's first, and in any other this costs 1 %.
constexpr uint32_t kExactTokens = 4;
constexpr uint32_t kOutlierBits = 48;  // what an outlier costs in the plane

using kernels::FloatToHalf;
using kernels::HalfToFloat;

// Where the values of one K channel or V row lie, outliers left out.
struct Range {
  float lo = 0.0f;
  float hi = 0.0f;
  bool has_outliers = false;
};

// log2 from frexp with a straight line between powers of two: the same on every machine, near
// enough to weigh bits against bits.
double CoarseLog2(double x) {
  int exponent;
  const double mantissa = std::frexp(x, &exponent);
  return exponent - 2 + 2 * mantissa;
}

// The range that n values should be coded over. Dropping m values from the ends costs kOutlierBits
// each and gains log2 of the range's shrinking for every value; the best m wins. Values far from
// the rest must not cost the rest its precision, and there are few, so channels without such are
// left at once.
Range FindRange(std::span<const float> values, std::vector<float>& sorted) {
  Range r{values[0], values[0]};
  double sum = 0;
  for (float x : values) {
    r.lo = std::min(r.lo, x);
    r.hi = std::max(r.hi, x);
    sum += x;
  }
  const size_t n = values.size();
  const double mean = sum / static_cast<double>(n);
  double deviation = 0;
  for (float x : values) deviation += std::abs(x - mean);
  const double range = double{r.hi} - r.lo;
  const size_t limit = n / 16;
  // 16 mean deviations: a normal distribution of 1024 values spans about 8.
  if (limit == 0 || range * static_cast<double>(n) <= 16 * deviation) return r;

  sorted.assign(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const auto cost = [&](double span, size_t dropped) {
    return static_cast<double>(n) * CoarseLog2(std::max(span, range / 65536)) +
           static_cast<double>(kOutlierBits * dropped);
  };
  double best = cost(range, 0);
  for (size_t m = 1; m <= limit; ++m) {
    for (size_t a = 0; a <= m; ++a) {
      const float lo = sorted[a];
      const float hi = sorted[n - 1 - (m - a)];
      const double c = cost(double{hi} - lo, m);
      if (c >= best) continue;
      best = c;
      r = {lo, hi, true};
    }
  }
  return r;
}

struct Outlier {
  uint32_t index;
  uint16_t bits;
};

// Encodes one block; lives for one call.
class BlockWriter {
 public:
  BlockWriter(const BlockShape& shape, const uint16_t* k, const uint16_t* v)
      : shape_(shape), sides_{k, v} {}

  absl::Status Run();
  std::vector<std::string> TakePlanes() { return std::move(planes_); }

 private:
  // Fills column_ with one head's tokens from exact_ on: [head_dim][coded_].
  void LoadHead(int side, uint32_t head);
  void QuantizeKHead(uint32_t head);
  void QuantizeVHead(uint32_t head);
  void QuantizeRow(const float* x, const float* lo, const float* inverse, uint8_t* codes) const;
  void NoteOutliers(int side, uint32_t head, uint32_t t, uint32_t d, const Range& range,
                    float value);
  void PutParam(std::vector<uint8_t>& params, uint32_t head, uint32_t length, uint32_t i,
                uint16_t lo, uint16_t step);
  void WritePlanes();

  const BlockShape shape_;
  const uint16_t* const sides_[2];  // K, V
  uint32_t exact_ = 0;
  uint32_t coded_ = 0;
  std::vector<float> column_;
  std::vector<uint8_t> codes_;     // [2][kv_heads][head_dim][coded_]
  std::vector<uint8_t> k_params_;  // [kv_heads][4][head_dim]
  std::vector<uint8_t> v_params_;  // [kv_heads][4][coded_]
  std::vector<Outlier> outliers_;
  std::vector<std::string> planes_;
};

void BlockWriter::LoadHead(int side, uint32_t head) {
  const uint32_t dim = shape_.head_dim;
  const uint16_t* in = sides_[side] + (size_t{head} * shape_.tokens + exact_) * dim;
  std::vector<float> row(dim);
  column_.resize(size_t{dim} * coded_);
  for (uint32_t t = 0; t < coded_; ++t) {
    HalfToFloat(in + size_t{t} * dim, row.data(), dim);
    for (uint32_t d = 0; d < dim; ++d) column_[size_t{d} * coded_ + t] = row[d];
  }
}

void BlockWriter::QuantizeRow(const float* x, const float* lo, const float* inverse,
                              uint8_t* codes) const {
  for (uint32_t t = 0; t < coded_; ++t) {
    const float c = (x[t] - lo[t]) * inverse[t] + 0.5f;
    codes[t] = static_cast<uint8_t>(static_cast<int>(std::min(std::max(c, 0.0f), 255.0f)));
  }
}

void BlockWriter::NoteOutliers(int side, uint32_t head, uint32_t t, uint32_t d, const Range& range,
                               float value) {
  if (value >= range.lo && value <= range.hi) return;
  const uint64_t index = (size_t{head} * shape_.tokens + exact_ + t) * shape_.head_dim + d;
  outliers_.push_back(
      {static_cast<uint32_t>(side == 0 ? index : index + shape_.elements()), sides_[side][index]});
}

void BlockWriter::PutParam(std::vector<uint8_t>& params, uint32_t head, uint32_t length, uint32_t i,
                           uint16_t lo, uint16_t step) {
  uint8_t* run = params.data() + size_t{4} * head * length + i;
  run[0] = static_cast<uint8_t>(lo);
  run[length] = static_cast<uint8_t>(lo >> 8);
  run[size_t{2} * length] = static_cast<uint8_t>(step);
  run[size_t{3} * length] = static_cast<uint8_t>(step >> 8);
}

void BlockWriter::QuantizeKHead(uint32_t head) {
  LoadHead(0, head);
  std::vector<float> sorted, los(coded_), inverses(coded_);
  for (uint32_t d = 0; d < shape_.head_dim; ++d) {
    const float* x = column_.data() + size_t{d} * coded_;
    const Range range = FindRange({x, coded_}, sorted);
    if (range.has_outliers) {
      for (uint32_t t = 0; t < coded_; ++t) NoteOutliers(0, head, t, d, range, x[t]);
    }
    const uint16_t step = HalfCeil((range.hi - range.lo) / 255.0f);
    PutParam(k_params_, head, shape_.head_dim, d, FloatToHalf(range.lo), step);
    std::fill(los.begin(), los.end(), range.lo);
    std::fill(inverses.begin(), inverses.end(), step == 0 ? 0.0f : 1.0f / HalfToFloat(step));
    QuantizeRow(x, los.data(), inverses.data(),
                codes_.data() + (size_t{head} * shape_.head_dim + d) * coded_);
  }
}

// A V row has only head_dim values to carry its two numbers, so these are rounded outwards to few
// significant bits: the range grows by 3 % on average and the numbers take 10 bits instead of 27.
void BlockWriter::QuantizeVHead(uint32_t head) {
  LoadHead(1, head);
  const uint32_t dim = shape_.head_dim;
  std::vector<float> sorted, row(dim), los(coded_), inverses(coded_);
  for (uint32_t t = 0; t < coded_; ++t) {
    for (uint32_t d = 0; d < dim; ++d) row[d] = column_[size_t{d} * coded_ + t];
    const Range range = FindRange(row, sorted);
    if (range.has_outliers) {
      for (uint32_t d = 0; d < dim; ++d) NoteOutliers(1, head, t, d, range, row[d]);
    }
    float lo = range.lo;
    uint16_t step = 0;
    if (range.hi > range.lo) {
      int exponent;
      std::frexp((range.hi - range.lo) / 32.0f, &exponent);
      const float grid = std::ldexp(1.0f, exponent - 1);  // 1/64 to 1/32 of the range
      const float rounded = std::floor(lo / grid) * grid;
      // Beyond the f16 range, or between two f16 numbers, lo itself is the better choice.
      if (rounded >= -65504.0f && HalfToFloat(FloatToHalf(rounded)) == rounded) lo = rounded;
      const float exact_step = (range.hi - lo) / 255.0f;
      const float mantissa = std::frexp(exact_step, &exponent);
      step = HalfCeil(std::ldexp(std::ceil(mantissa * 16.0f), exponent - 4));
    }
    PutParam(v_params_, head, coded_, t, FloatToHalf(lo), step);
    los[t] = lo;
    inverses[t] = step == 0 ? 0.0f : 1.0f / HalfToFloat(step);
  }
  for (uint32_t d = 0; d < dim; ++d) {
    QuantizeRow(column_.data() + size_t{d} * coded_, los.data(), inverses.data(),
                codes_.data() + (size_t{shape_.kv_heads + head} * dim + d) * coded_);
  }
}

void BlockWriter::WritePlanes() {
  const uint32_t heads = shape_.kv_heads;
  const uint32_t dim = shape_.head_dim;
  std::vector<uint8_t> symbols(codes_.size());
  int shift = 8;
  for (int p = 0; p < kGenericPlanes; ++p) {
    ByteWriter out;
    WritePlaneTag(GenericDecoder()->info(), p, out);
    if (p == 0) {
      out.Write<uint16_t>(static_cast<uint16_t>(exact_));
      for (int side = 0; side < 2; ++side) {
        for (uint32_t h = 0; h < heads; ++h) {
          const uint16_t* rows = sides_[side] + size_t{h} * shape_.tokens * dim;
          for (size_t i = 0; i < size_t{exact_} * dim; ++i) out.Write<uint16_t>(rows[i]);
        }
      }
      out.Write<uint32_t>(static_cast<uint32_t>(outliers_.size()));
      for (const Outlier& o : outliers_) {
        out.Write<uint32_t>(o.index);
        out.Write<uint16_t>(o.bits);
      }
      if (coded_ > 0) {
        EncodeSymbols(4 * heads, dim, 8, k_params_.data(), out);
        EncodeSymbols(4 * heads, coded_, 8, v_params_.data(), out);
      }
    }
    if (coded_ > 0) {
      const int bits = kGenericPlaneBits[p];
      shift -= bits;
      for (size_t i = 0; i < codes_.size(); ++i) {
        symbols[i] = static_cast<uint8_t>((codes_[i] >> shift) & ((1 << bits) - 1));
      }
      EncodeSymbols(2 * heads * dim, coded_, bits, symbols.data(), out);
    }
    planes_.push_back(out.Take());
  }
}

absl::Status BlockWriter::Run() {
  RETURN_IF_ERROR(CheckFinite("generic", shape_, sides_[0], sides_[1]));
  exact_ = std::min(shape_.tokens, kExactTokens);
  coded_ = shape_.tokens - exact_;
  if (coded_ > 0) {
    codes_.resize(size_t{2} * shape_.kv_heads * shape_.head_dim * coded_);
    k_params_.resize(size_t{4} * shape_.kv_heads * shape_.head_dim);
    v_params_.resize(size_t{4} * shape_.kv_heads * coded_);
    for (uint32_t h = 0; h < shape_.kv_heads; ++h) QuantizeKHead(h);
    for (uint32_t h = 0; h < shape_.kv_heads; ++h) QuantizeVHead(h);
    std::sort(outliers_.begin(), outliers_.end(),
              [](const Outlier& a, const Outlier& b) { return a.index < b.index; });
  }
  WritePlanes();
  return absl::OkStatus();
}

class Encoder final : public BlockEncoder {
 public:
  const CodecInfo& info() const override { return GenericDecoder()->info(); }
  absl::StatusOr<std::vector<std::string>> EncodeBlock(const BlockInput& in) const override {
    RETURN_IF_ERROR(in.shape.Validate());
    BlockWriter writer(in.shape, in.k, in.v);
    RETURN_IF_ERROR(writer.Run());
    return writer.TakePlanes();
  }
};

}  // namespace

const BlockEncoder* GenericEncoder() {
  static const Encoder* const encoder = new Encoder;
  return encoder;
}

}  // namespace sparkv
