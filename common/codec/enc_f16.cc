#include "common/codec/enc_f16.h"

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/codec/dec_f16.h"
#include "common/codec/enc_block.h"
#include "common/codec/enc_symbols.h"

namespace sparkv {
namespace {

class Encoder final : public BlockEncoder {
 public:
  const CodecInfo& info() const override { return F16Decoder()->info(); }

  absl::StatusOr<std::vector<std::string>> EncodeBlock(const BlockInput& in) const override {
    const BlockShape& shape = in.shape;
    RETURN_IF_ERROR(shape.Validate());
    const size_t head = size_t{shape.tokens} * shape.head_dim;
    std::vector<uint8_t> high(2 * shape.elements());
    std::vector<uint8_t> low(2 * shape.elements());
    for (uint32_t i = 0; i < 2 * shape.kv_heads; ++i) {
      const uint16_t* rows =
          i < shape.kv_heads ? in.k + i * head : in.v + (i - shape.kv_heads) * head;
      for (uint32_t t = 0; t < shape.tokens; ++t) {
        for (uint32_t d = 0; d < shape.head_dim; ++d) {
          const uint16_t bits = rows[size_t{t} * shape.head_dim + d];
          const size_t to = i * head + size_t{d} * shape.tokens + t;
          high[to] = static_cast<uint8_t>(bits >> 8);
          low[to] = static_cast<uint8_t>(bits);
        }
      }
    }
    const uint32_t runs = 2 * shape.kv_heads * shape.head_dim;
    ByteWriter out;
    WritePlaneTag(info(), 0, out);
    EncodeSymbols(runs, shape.tokens, 8, high.data(), out);
    EncodeSymbols(runs, shape.tokens, 8, low.data(), out);
    return std::vector<std::string>{out.Take()};
  }
};

}  // namespace

const BlockEncoder* F16Encoder() {
  static const Encoder* const encoder = new Encoder;
  return encoder;
}

}  // namespace sparkv
