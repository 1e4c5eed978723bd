#include "common/codec/dec_f16.h"

#include <memory>

#include "common/base/bytes.h"
#include "common/codec/dec_block.h"
#include "common/codec/dec_symbols.h"
#include "common/codec/dec_values.h"

namespace sparkv {
namespace {

class Decoder final : public BlockDecoder {
 public:
  const CodecInfo& info() const override { return info_; }

  absl::Status DecodeBlock(const BlockShape& shape,
                           std::span<const std::span<const uint8_t>> planes, uint16_t* k,
                           uint16_t* v) const override {
    RETURN_IF_ERROR(CheckDecodeCall(info_, shape, planes.size()));
    ByteReader reader(planes[0]);
    RETURN_IF_ERROR(ReadPlaneTag(reader, info_, 0));
    const uint32_t runs = 2 * shape.kv_heads * shape.head_dim;
    const auto high = std::make_unique_for_overwrite<uint8_t[]>(2 * shape.elements());
    const auto low = std::make_unique_for_overwrite<uint8_t[]>(2 * shape.elements());
    RETURN_IF_ERROR(DecodeSymbols(reader, runs, shape.tokens, 8, Combine::kReplace,
                                  "f16 high bytes", high.get()));
    RETURN_IF_ERROR(DecodeSymbols(reader, runs, shape.tokens, 8, Combine::kReplace, "f16 low bytes",
                                  low.get()));
    RETURN_IF_ERROR(CheckPlaneEnd(reader, info_, 0));
    const size_t head = size_t{shape.tokens} * shape.head_dim;
    for (uint32_t i = 0; i < 2 * shape.kv_heads; ++i) {
      uint16_t* out = i < shape.kv_heads ? k + i * head : v + (i - shape.kv_heads) * head;
      JoinBytes(high.get() + i * head, low.get() + i * head, shape.tokens, shape.head_dim, out);
    }
    return absl::OkStatus();
  }

 private:
  const CodecInfo info_{.name = "f16",
                        .id = 1,
                        .version = 1,
                        .planes = 1,
                        .levels = {{16, 1}},
                        .default_level = 16,
                        .lossless = true};
};

}  // namespace

const BlockDecoder* F16Decoder() {
  static const Decoder* const decoder = new Decoder;
  return decoder;
}

}  // namespace sparkv
