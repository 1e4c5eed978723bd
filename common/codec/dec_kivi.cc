#include "common/codec/dec_kivi.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/codec/dec_block.h"
#include "common/codec/dec_halves.h"
#include "common/codec/dec_refine.h"
#include "common/codec/dec_symbols.h"
#include "common/codec/dec_values.h"
#include "common/codec/format.h"
#include "kernels/half.h"

namespace sparkv {
namespace {

// With L upper bits known: c = 2^(4-L) * q + 2^(3-L) - 1/2.
constexpr CodeScale kCodeScale[kKiviPlanes] = {
    {4.0f, 1.5f}, {2.0f, 0.5f}, {1.0f, 0.0f}, {0.5f, -0.25f}, {0.0625f, -0.46875f}};

// lo and step of all groups: [kv_heads][groups][2][length].
absl::StatusOr<std::vector<uint16_t>> ReadParams(ByteReader& reader, uint32_t groups,
                                                 uint32_t length, std::string_view what) {
  ASSIGN_OR_RETURN(std::vector<uint16_t> halves, DecodeHalves(reader, 2 * groups, length, what));
  for (size_t g = 0; g < groups; ++g) {
    RETURN_IF_ERROR(CheckNoSign(std::span(halves).subspan((2 * g + 1) * length, length), what));
  }
  return halves;
}

class Decoder final : public BlockDecoder {
 public:
  const CodecInfo& info() const override { return info_; }
  absl::Status DecodeBlock(const BlockShape& shape,
                           std::span<const std::span<const uint8_t>> planes, uint16_t* k,
                           uint16_t* v) const override;

 private:
  const CodecInfo info_{.name = "kivi",
                        .id = 5,
                        .version = 1,
                        .planes = kKiviPlanes,
                        .levels = {{2, 1}, {3, 2}, {4, 3}, {5, 4}, {8, 5}},
                        .default_level = 4,
                        .lossless = false};
};

absl::Status Decoder::DecodeBlock(const BlockShape& shape,
                                  std::span<const std::span<const uint8_t>> planes, uint16_t* k,
                                  uint16_t* v) const {
  RETURN_IF_ERROR(CheckDecodeCall(info_, shape, planes.size()));
  const uint32_t heads = shape.kv_heads;
  const uint32_t tokens = shape.tokens;
  const uint32_t dim = shape.head_dim;
  const size_t elements = shape.elements();
  const auto codes = std::make_unique_for_overwrite<uint8_t[]>(2 * elements);
  uint32_t group = 0;
  std::vector<uint16_t> k_params, v_params;
  for (size_t p = 0; p < planes.size(); ++p) {
    const int plane = static_cast<int>(p);
    ByteReader reader(planes[p]);
    RETURN_IF_ERROR(ReadPlaneTag(reader, info_, plane));
    if (plane == 0) {
      ASSIGN_OR_RETURN(group, reader.Read<uint16_t>("kivi group"));
      if (group < kMinKiviGroup || group > kMaxColumnTokens) {
        return absl::DataLossError(absl::StrCat("kivi group is ", group, "; allowed ",
                                                kMinKiviGroup, "..", kMaxColumnTokens));
      }
      ASSIGN_OR_RETURN(k_params, ReadParams(reader, heads * ((tokens + group - 1) / group), dim,
                                            "kivi K parameters"));
      ASSIGN_OR_RETURN(v_params, ReadParams(reader, heads * ((dim + group - 1) / group), tokens,
                                            "kivi V parameters"));
      RETURN_IF_ERROR(DecodeSymbols(reader, 2 * heads * dim, tokens, kKiviPlaneBits[0],
                                    Combine::kReplace, "kivi codes", codes.get()));
    } else {
      for (int side = 0; side < 2; ++side) {
        RETURN_IF_ERROR(DecodeRefinement(reader, elements, 1 << kKiviPlaneBits[p],
                                         side == 0 ? "kivi finer K" : "kivi finer V",
                                         codes.get() + side * elements));
      }
    }
    RETURN_IF_ERROR(CheckPlaneEnd(reader, info_, plane));
  }

  std::vector<float> lo(std::max(tokens, dim)), step(lo.size());
  DequantizeArgs args;
  args.lo = lo.data();
  args.step = step.data();
  args.code = kCodeScale[planes.size() - 1];
  args.codes_stride = tokens;
  args.out_stride = dim;
  for (int side = 0; side < 2; ++side) {
    const uint16_t* params = side == 0 ? k_params.data() : v_params.data();
    const uint32_t along = side == 0 ? tokens : dim;   // what is cut in groups
    const uint32_t across = side == 0 ? dim : tokens;  // what each has its own lo and step
    args.per_channel = side == 0;
    for (uint32_t h = 0; h < heads; ++h) {
      const size_t head = size_t{h} * tokens * dim;
      for (uint32_t begin = 0; begin < along; begin += group, params += size_t{2} * across) {
        kernels::HalfToFloat(params, lo.data(), across);
        kernels::HalfToFloat(params + across, step.data(), across);
        const uint32_t n = std::min(group, along - begin);
        args.tokens = side == 0 ? n : tokens;
        args.head_dim = side == 0 ? dim : n;
        const size_t first_code = side == 0 ? begin : size_t{begin} * tokens;
        const size_t first_value = side == 0 ? size_t{begin} * dim : begin;
        args.codes = codes.get() + side * elements + head + first_code;
        DequantizeHead(args, (side == 0 ? k : v) + head + first_value);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

const BlockDecoder* KiviDecoder() {
  static const Decoder* const decoder = new Decoder;
  return decoder;
}

}  // namespace sparkv
