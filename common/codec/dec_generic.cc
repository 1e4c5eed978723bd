#include "common/codec/dec_generic.h"

#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/codec/dec_block.h"
#include "common/codec/dec_symbols.h"
#include "common/codec/dec_values.h"
#include "kernels/half.h"

namespace sparkv {
namespace {

constexpr CodeScale kCodeScale[kGenericPlanes] = {{16.0f, 7.5f}, {8.0f, 3.5f}, {1.0f, 0.0f}};
constexpr const char* kPlaneName[kGenericPlanes] = {"generic codes 7..4", "generic codes 3",
                                                    "generic codes 2..0"};

// lo and step of all heads over `length` channels or tokens: [kv_heads][length].
struct Params {
  std::vector<float> lo;
  std::vector<float> step;
};

absl::StatusOr<Params> ReadParams(ByteReader& reader, uint32_t heads, uint32_t length,
                                  std::string_view what) {
  const size_t n = size_t{heads} * length;
  std::vector<uint8_t> bytes(4 * n);
  RETURN_IF_ERROR(
      DecodeSymbols(reader, 4 * heads, length, 8, Combine::kReplace, what, bytes.data()));
  Params params{std::vector<float>(n), std::vector<float>(n)};
  for (uint32_t h = 0; h < heads; ++h) {
    const uint8_t* run = bytes.data() + size_t{4} * h * length;
    for (uint32_t i = 0; i < length; ++i) {
      const auto lo = static_cast<uint16_t>(run[i] | run[length + i] << 8);
      const auto step = static_cast<uint16_t>(run[2 * length + i] | run[3 * length + i] << 8);
      if ((lo & 0x7C00) == 0x7C00 || step >= 0x7C00) {
        return absl::DataLossError(absl::StrCat(std::string(what), ": lo or step of head ", h,
                                                " number ", i,
                                                " is not finite or step is negative"));
      }
      params.lo[size_t{h} * length + i] = kernels::HalfToFloat(lo);
      params.step[size_t{h} * length + i] = kernels::HalfToFloat(step);
    }
  }
  return params;
}

class Decoder final : public BlockDecoder {
 public:
  const CodecInfo& info() const override { return info_; }
  absl::Status DecodeBlock(const BlockShape& shape,
                           std::span<const std::span<const uint8_t>> planes, uint16_t* k,
                           uint16_t* v) const override;

 private:
  const CodecInfo info_{.name = "generic",
                        .id = 2,
                        .version = 1,
                        .planes = kGenericPlanes,
                        .levels = {{4, 1}, {5, 2}, {8, 3}},
                        .default_level = 5,
                        .lossless = false};
};

absl::Status Decoder::DecodeBlock(const BlockShape& shape,
                                  std::span<const std::span<const uint8_t>> planes, uint16_t* k,
                                  uint16_t* v) const {
  RETURN_IF_ERROR(CheckDecodeCall(info_, shape, planes.size()));
  const uint32_t heads = shape.kv_heads;
  const uint32_t dim = shape.head_dim;
  const uint64_t elements = shape.elements();
  ByteReader reader(planes[0]);
  RETURN_IF_ERROR(ReadPlaneTag(reader, info_, 0));
  ASSIGN_OR_RETURN(const uint16_t exact, reader.Read<uint16_t>("generic exact tokens"));
  if (exact > shape.tokens) {
    return absl::DataLossError(
        absl::StrCat("generic: ", exact, " exact tokens; the block has ", shape.tokens));
  }
  ASSIGN_OR_RETURN(const auto exact_bytes,
                   reader.ReadBytes(uint64_t{4} * heads * exact * dim, "generic exact tokens"));
  ASSIGN_OR_RETURN(const uint32_t outliers, reader.Read<uint32_t>("generic outliers"));
  ASSIGN_OR_RETURN(const auto outlier_bytes,
                   reader.ReadBytes(uint64_t{6} * outliers, "generic outliers"));

  const uint32_t coded = shape.tokens - exact;
  if (coded > 0) {
    ASSIGN_OR_RETURN(const Params k_params, ReadParams(reader, heads, dim, "generic K parameters"));
    ASSIGN_OR_RETURN(const Params v_params,
                     ReadParams(reader, heads, coded, "generic V parameters"));
    const size_t head_codes = size_t{coded} * dim;
    const auto codes = std::make_unique_for_overwrite<uint8_t[]>(2 * heads * head_codes);
    for (size_t p = 0; p < planes.size(); ++p) {
      ByteReader plane_reader = p == 0 ? reader : ByteReader(planes[p]);
      if (p > 0) RETURN_IF_ERROR(ReadPlaneTag(plane_reader, info_, static_cast<int>(p)));
      RETURN_IF_ERROR(DecodeSymbols(plane_reader, 2 * heads * dim, coded, kGenericPlaneBits[p],
                                    p == 0 ? Combine::kReplace : Combine::kAppend, kPlaneName[p],
                                    codes.get()));
      RETURN_IF_ERROR(CheckPlaneEnd(plane_reader, info_, static_cast<int>(p)));
    }
    DequantizeArgs args;
    args.tokens = coded;
    args.head_dim = dim;
    args.code = kCodeScale[planes.size() - 1];
    for (uint32_t h = 0; h < heads; ++h) {
      const size_t out = (size_t{h} * shape.tokens + exact) * dim;
      args.codes = codes.get() + h * head_codes;
      args.lo = k_params.lo.data() + size_t{h} * dim;
      args.step = k_params.step.data() + size_t{h} * dim;
      args.per_channel = true;
      DequantizeHead(args, k + out);
      args.codes = codes.get() + (heads + h) * head_codes;
      args.lo = v_params.lo.data() + size_t{h} * coded;
      args.step = v_params.step.data() + size_t{h} * coded;
      args.per_channel = false;
      DequantizeHead(args, v + out);
    }
  } else {
    RETURN_IF_ERROR(CheckPlaneEnd(reader, info_, 0));
    for (size_t p = 1; p < planes.size(); ++p) {
      ByteReader plane_reader(planes[p]);
      RETURN_IF_ERROR(ReadPlaneTag(plane_reader, info_, static_cast<int>(p)));
      RETURN_IF_ERROR(CheckPlaneEnd(plane_reader, info_, static_cast<int>(p)));
    }
  }

  if (exact > 0) {
    const size_t row_bytes = size_t{2} * exact * dim;
    for (uint32_t i = 0; i < 2 * heads; ++i) {
      uint16_t* side = i < heads ? k : v;
      const uint32_t h = i < heads ? i : i - heads;
      std::memcpy(side + size_t{h} * shape.tokens * dim, exact_bytes.data() + i * row_bytes,
                  row_bytes);
    }
  }
  uint64_t next_index = 0;
  for (uint32_t i = 0; i < outliers; ++i) {
    uint32_t index;
    uint16_t bits;
    std::memcpy(&index, outlier_bytes.data() + size_t{6} * i, 4);
    std::memcpy(&bits, outlier_bytes.data() + size_t{6} * i + 4, 2);
    if (index < next_index || index >= 2 * elements) {
      return absl::DataLossError(absl::StrCat("generic outlier ", i, " has index ", index,
                                              "; allowed ", next_index, "..", 2 * elements - 1));
    }
    next_index = uint64_t{index} + 1;
    (index < elements ? k[index] : v[index - elements]) = bits;
  }
  return absl::OkStatus();
}

}  // namespace

const BlockDecoder* GenericDecoder() {
  static const Decoder* const decoder = new Decoder;
  return decoder;
}

}  // namespace sparkv
