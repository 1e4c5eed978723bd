#include "common/codec/dec_cachegen.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/codec/dec_block.h"
#include "common/codec/dec_halves.h"
#include "common/codec/dec_refine.h"
#include "common/codec/dec_symbols.h"
#include "common/codec/dec_values.h"
#include "kernels/half.h"

namespace sparkv {
namespace {

class Decoder final : public BlockDecoder {
 public:
  const CodecInfo& info() const override { return info_; }
  absl::Status DecodeBlock(const BlockShape& shape,
                           std::span<const std::span<const uint8_t>> planes, uint16_t* k,
                           uint16_t* v) const override;

 private:
  const CodecInfo info_{.name = "cachegen",
                        .id = 4,
                        .version = 1,
                        .planes = kCachegenPlanes,
                        .levels = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}},
                        .default_level = 3,
                        .lossless = false};
};

absl::Status Decoder::DecodeBlock(const BlockShape& shape,
                                  std::span<const std::span<const uint8_t>> planes, uint16_t* k,
                                  uint16_t* v) const {
  RETURN_IF_ERROR(CheckDecodeCall(info_, shape, planes.size()));
  const uint32_t heads = shape.kv_heads;
  const size_t elements = shape.elements();
  const auto codes = std::make_unique_for_overwrite<uint8_t[]>(2 * elements);
  int coarsest[2] = {};
  std::vector<uint16_t> scales;  // [2][tokens]
  for (size_t p = 0; p < planes.size(); ++p) {
    const int plane = static_cast<int>(p);
    ByteReader reader(planes[p]);
    RETURN_IF_ERROR(ReadPlaneTag(reader, info_, plane));
    if (plane == 0) {
      for (int& cell : coarsest) {
        ASSIGN_OR_RETURN(cell, reader.Read<uint8_t>("cachegen cell"));
        if (cell != 8 && cell != 12) {
          return absl::DataLossError(absl::StrCat("cachegen cell is ", cell, "; allowed 8 and 12"));
        }
      }
      ASSIGN_OR_RETURN(scales, DecodeHalves(reader, 2, shape.tokens, "cachegen scales"));
      RETURN_IF_ERROR(CheckNoSign(scales, "cachegen scales"));
      RETURN_IF_ERROR(DecodeSymbols(reader, 2 * heads * shape.head_dim, shape.tokens, 4,
                                    Combine::kReplace, "cachegen codes", codes.get()));
    } else {
      for (int side = 0; side < 2; ++side) {
        const int ways = CachegenCell(side, coarsest[side], plane) /
                         CachegenCell(side, coarsest[side], plane + 1);
        if (ways == 1) continue;
        // A code is at most 15 * 12 + 11.
        RETURN_IF_ERROR(DecodeRefinement(reader, elements, ways,
                                         side == 0 ? "cachegen finer K" : "cachegen finer V",
                                         codes.get() + side * elements));
      }
    }
    RETURN_IF_ERROR(CheckPlaneEnd(reader, info_, plane));
  }

  const std::vector<float> zeros(shape.tokens);
  std::vector<float> steps(shape.tokens);
  DequantizeArgs args;
  args.tokens = shape.tokens;
  args.head_dim = shape.head_dim;
  args.lo = zeros.data();
  args.step = steps.data();
  args.per_channel = false;
  for (int side = 0; side < 2; ++side) {
    const int cell = CachegenCell(side, coarsest[side], static_cast<int>(planes.size()));
    args.code = {static_cast<float>(cell), 0.5f * static_cast<float>(cell - 1) -
                                               static_cast<float>(CachegenZero(coarsest[side]))};
    for (uint32_t t = 0; t < shape.tokens; ++t) {
      steps[t] = kernels::HalfToFloat(scales[side * size_t{shape.tokens} + t]) /
                 static_cast<float>(kCachegenSteps);
    }
    const size_t head = size_t{shape.tokens} * shape.head_dim;
    for (uint32_t h = 0; h < heads; ++h) {
      args.codes = codes.get() + side * elements + h * head;
      DequantizeHead(args, (side == 0 ? k : v) + h * head);
    }
  }
  return absl::OkStatus();
}

}  // namespace

const BlockDecoder* CachegenDecoder() {
  static const Decoder* const decoder = new Decoder;
  return decoder;
}

}  // namespace sparkv
