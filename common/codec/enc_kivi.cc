#include "common/codec/enc_kivi.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/codec/dec_kivi.h"
#include "common/codec/enc_block.h"
#include "common/codec/enc_halves.h"
#include "common/codec/enc_refine.h"
#include "common/codec/enc_symbols.h"
#include "kernels/half.h"

namespace sparkv {
namespace {

constexpr uint32_t kGroup = 64;

// One group's parameters and what quantizing with them needs.
struct Scale {
  uint16_t lo = 0;
  uint16_t step = 0;
  float low = 0.0f;
  float inverse = 0.0f;  // sixteenths of a step in 1

  Scale(float smallest, float largest)
      : lo(kernels::FloatToHalf(smallest)),
        step(HalfCeil((largest - smallest) / 15.0f)),
        low(smallest),
        inverse(step == 0 ? 0.0f : 16.0f / kernels::HalfToFloat(step)) {}

  // Step q of KIVI's 4 bits is the middle of the codes 16 * q - 8 .. 16 * q + 7, moved up by 8.
  uint8_t Code(float x) const {
    return static_cast<uint8_t>(static_cast<int>(std::min((x - low) * inverse + 8.0f, 255.0f)));
  }
};

// Encodes one block; lives for one call.
class BlockWriter {
 public:
  explicit BlockWriter(const BlockInput& in)
      : in_(in),
        shape_(in.shape),
        token_groups_((shape_.tokens + kGroup - 1) / kGroup),
        channel_groups_((shape_.head_dim + kGroup - 1) / kGroup),
        rows_(size_t{shape_.tokens} * shape_.head_dim),
        codes_(2 * shape_.elements()),
        k_params_(size_t{2} * shape_.kv_heads * token_groups_ * shape_.head_dim),
        v_params_(size_t{2} * shape_.kv_heads * channel_groups_ * shape_.tokens) {}

  std::vector<std::string> Run();

 private:
  void QuantizeKHead(uint32_t head);
  void QuantizeVHead(uint32_t head);

  const BlockInput& in_;
  const BlockShape shape_;
  const uint32_t token_groups_;
  const uint32_t channel_groups_;
  std::vector<float> rows_;         // one head, [tokens][head_dim]
  std::vector<uint8_t> codes_;      // [2][kv_heads][head_dim][tokens]
  std::vector<uint16_t> k_params_;  // [kv_heads][token_groups_][2][head_dim]
  std::vector<uint16_t> v_params_;  // [kv_heads][channel_groups_][2][tokens]
};

void BlockWriter::QuantizeKHead(uint32_t head) {
  const uint32_t dim = shape_.head_dim;
  const size_t first = size_t{head} * rows_.size();
  kernels::HalfToFloat(in_.k + first, rows_.data(), rows_.size());
  std::vector<float> smallest(dim), largest(dim);
  for (uint32_t g = 0; g < token_groups_; ++g) {
    const uint32_t begin = g * kGroup;
    const uint32_t end = std::min(begin + kGroup, shape_.tokens);
    const float* row = rows_.data() + size_t{begin} * dim;
    std::copy_n(row, dim, smallest.data());
    std::copy_n(row, dim, largest.data());
    for (uint32_t t = begin + 1; t < end; ++t) {
      row += dim;
      for (uint32_t d = 0; d < dim; ++d) {
        smallest[d] = std::min(smallest[d], row[d]);
        largest[d] = std::max(largest[d], row[d]);
      }
    }
    uint16_t* params = k_params_.data() + (size_t{head} * token_groups_ + g) * 2 * dim;
    for (uint32_t d = 0; d < dim; ++d) {
      const Scale scale(smallest[d], largest[d]);
      params[d] = scale.lo;
      params[dim + d] = scale.step;
      uint8_t* out = codes_.data() + first + size_t{d} * shape_.tokens;
      for (uint32_t t = begin; t < end; ++t) out[t] = scale.Code(rows_[size_t{t} * dim + d]);
    }
  }
}

void BlockWriter::QuantizeVHead(uint32_t head) {
  const uint32_t dim = shape_.head_dim;
  const uint32_t tokens = shape_.tokens;
  const size_t first = size_t{head} * rows_.size();
  kernels::HalfToFloat(in_.v + first, rows_.data(), rows_.size());
  uint8_t* codes = codes_.data() + shape_.elements() + first;
  for (uint32_t g = 0; g < channel_groups_; ++g) {
    const uint32_t begin = g * kGroup;
    const uint32_t n = std::min(kGroup, dim - begin);
    uint16_t* params = v_params_.data() + (size_t{head} * channel_groups_ + g) * 2 * tokens;
    for (uint32_t t = 0; t < tokens; ++t) {
      const float* row = rows_.data() + size_t{t} * dim + begin;
      const auto [smallest, largest] = std::minmax_element(row, row + n);
      const Scale scale(*smallest, *largest);
      params[t] = scale.lo;
      params[tokens + t] = scale.step;
      for (uint32_t d = 0; d < n; ++d) codes[size_t{begin + d} * tokens + t] = scale.Code(row[d]);
    }
  }
}

std::vector<std::string> BlockWriter::Run() {
  for (uint32_t h = 0; h < shape_.kv_heads; ++h) QuantizeKHead(h);
  for (uint32_t h = 0; h < shape_.kv_heads; ++h) QuantizeVHead(h);
  const size_t elements = shape_.elements();
  std::vector<uint8_t> known(2 * elements), finer(elements);
  std::vector<std::string> planes;
  int shift = 8;
  for (int p = 0; p < kKiviPlanes; ++p) {
    ByteWriter out;
    WritePlaneTag(KiviDecoder()->info(), p, out);
    shift -= kKiviPlaneBits[p];
    if (p == 0) {
      out.Write<uint16_t>(kGroup);
      EncodeHalves(2 * shape_.kv_heads * token_groups_, shape_.head_dim, k_params_.data(), out);
      EncodeHalves(2 * shape_.kv_heads * channel_groups_, shape_.tokens, v_params_.data(), out);
      for (size_t i = 0; i < 2 * elements; ++i) known[i] = static_cast<uint8_t>(codes_[i] >> shift);
      EncodeSymbols(2 * shape_.kv_heads * shape_.head_dim, shape_.tokens, kKiviPlaneBits[0],
                    known.data(), out);
    } else {
      for (size_t side = 0; side < 2; ++side) {
        const uint8_t* from = codes_.data() + side * elements;
        for (size_t i = 0; i < elements; ++i) finer[i] = static_cast<uint8_t>(from[i] >> shift);
        EncodeRefinement(elements, 1 << kKiviPlaneBits[p], finer.data(),
                         known.data() + side * elements, out);
      }
    }
    planes.push_back(out.Take());
  }
  return planes;
}

class Encoder final : public BlockEncoder {
 public:
  const CodecInfo& info() const override { return KiviDecoder()->info(); }
  absl::StatusOr<std::vector<std::string>> EncodeBlock(const BlockInput& in) const override {
    RETURN_IF_ERROR(in.shape.Validate());
    RETURN_IF_ERROR(CheckFinite(info().name, in.shape, in.k, in.v));
    return BlockWriter(in).Run();
  }
};

}  // namespace

const BlockEncoder* KiviEncoder() {
  static const Encoder* const encoder = new Encoder;
  return encoder;
}

}  // namespace sparkv
