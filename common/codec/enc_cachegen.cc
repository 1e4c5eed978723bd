#include "common/codec/enc_cachegen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/codec/dec_cachegen.h"
#include "common/codec/enc_block.h"
#include "common/codec/enc_halves.h"
#include "common/codec/enc_refine.h"
#include "common/codec/enc_symbols.h"
#include "kernels/half.h"

namespace sparkv {
namespace {

// CacheGen's coarsest level has 16 bins for K in two thirds of the layers and for V in the first
// two, else 12.
int CoarsestCell(int side, const BlockPlace& place) {
  const bool more_bins =
      side == 0 ? uint64_t{3} * place.layer < uint64_t{2} * place.layers : place.layer < 2;
  return more_bins ? 8 : 12;
}

// The largest magnitude of each token over all heads, f16 bits.
void FindScales(const BlockShape& shape, const uint16_t* side, uint16_t* scales) {
  std::fill_n(scales, shape.tokens, uint16_t{0});
  for (uint32_t h = 0; h < shape.kv_heads; ++h) {
    for (uint32_t t = 0; t < shape.tokens; ++t) {
      const uint16_t* row = side + (size_t{h} * shape.tokens + t) * shape.head_dim;
      uint16_t largest = scales[t];
      for (uint32_t d = 0; d < shape.head_dim; ++d) {
        largest = std::max(largest, static_cast<uint16_t>(row[d] & 0x7FFF));
      }
      scales[t] = largest;
    }
  }
}

// Codes in single steps, [kv_heads][head_dim][tokens].
void Quantize(const BlockShape& shape, const uint16_t* side, const uint16_t* scales, int zero,
              uint8_t* codes) {
  constexpr uint32_t kTile = 64;  // tokens whose rows stay in the cache while channels are gathered
  const uint32_t dim = shape.head_dim;
  std::vector<float> rows(size_t{kTile} * dim);
  for (uint32_t h = 0; h < shape.kv_heads; ++h) {
    uint8_t* head = codes + size_t{h} * dim * shape.tokens;
    for (uint32_t t0 = 0; t0 < shape.tokens; t0 += kTile) {
      const uint32_t n = std::min(kTile, shape.tokens - t0);
      kernels::HalfToFloat(side + (size_t{h} * shape.tokens + t0) * dim, rows.data(),
                           size_t{n} * dim);
      for (uint32_t i = 0; i < n; ++i) {
        // 0.5 more than the nearest step, so that cutting off rounds; a scale of 0 has only zeros.
        const float scale = kernels::HalfToFloat(scales[t0 + i]);
        const float inverse = scale == 0.0f ? 0.0f : static_cast<float>(kCachegenSteps) / scale;
        float* row = rows.data() + size_t{i} * dim;
        for (uint32_t d = 0; d < dim; ++d) {
          row[d] = row[d] * inverse + (static_cast<float>(zero) + 0.5f);
        }
      }
      for (uint32_t d = 0; d < dim; ++d) {
        uint8_t* out = head + size_t{d} * shape.tokens + t0;
        for (uint32_t i = 0; i < n; ++i) {
          out[i] = static_cast<uint8_t>(static_cast<int>(rows[size_t{i} * dim + d]));
        }
      }
    }
  }
}

std::vector<std::string> Encode(const BlockInput& in) {
  const BlockShape& shape = in.shape;
  const size_t elements = shape.elements();
  std::vector<uint16_t> scales(size_t{2} * shape.tokens);
  std::vector<uint8_t> fine(2 * elements), codes(2 * elements), finer(elements);
  int coarsest[2];
  for (int side = 0; side < 2; ++side) {
    const uint16_t* values = side == 0 ? in.k : in.v;
    uint16_t* side_scales = scales.data() + side * size_t{shape.tokens};
    coarsest[side] = CoarsestCell(side, in.place);
    FindScales(shape, values, side_scales);
    Quantize(shape, values, side_scales, CachegenZero(coarsest[side]),
             fine.data() + side * elements);
  }
  const auto divide = [&](int side, int cell, uint8_t* out) {
    std::array<uint8_t, 256> quotient;
    for (int i = 0; i < 256; ++i) quotient[i] = static_cast<uint8_t>(i / cell);
    const uint8_t* from = fine.data() + side * elements;
    for (size_t i = 0; i < elements; ++i) out[i] = quotient[from[i]];
  };
  std::vector<std::string> planes;
  for (int p = 0; p < kCachegenPlanes; ++p) {
    ByteWriter out;
    WritePlaneTag(CachegenDecoder()->info(), p, out);
    if (p == 0) {
      for (int side = 0; side < 2; ++side) {
        out.Write<uint8_t>(static_cast<uint8_t>(coarsest[side]));
        divide(side, coarsest[side], codes.data() + side * elements);
      }
      EncodeHalves(2, shape.tokens, scales.data(), out);
      EncodeSymbols(2 * shape.kv_heads * shape.head_dim, shape.tokens, 4, codes.data(), out);
    } else {
      for (int side = 0; side < 2; ++side) {
        const int cell = CachegenCell(side, coarsest[side], p + 1);
        const int ways = CachegenCell(side, coarsest[side], p) / cell;
        if (ways == 1) continue;
        divide(side, cell, finer.data());
        EncodeRefinement(elements, ways, finer.data(), codes.data() + side * elements, out);
      }
    }
    planes.push_back(out.Take());
  }
  return planes;
}

class Encoder final : public BlockEncoder {
 public:
  const CodecInfo& info() const override { return CachegenDecoder()->info(); }
  absl::StatusOr<std::vector<std::string>> EncodeBlock(const BlockInput& in) const override {
    RETURN_IF_ERROR(in.shape.Validate());
    RETURN_IF_ERROR(CheckFinite(info().name, in.shape, in.k, in.v));
    return Encode(in);
  }
};

}  // namespace

const BlockEncoder* CachegenEncoder() {
  static const Encoder* const encoder = new Encoder;
  return encoder;
}

}  // namespace sparkv
