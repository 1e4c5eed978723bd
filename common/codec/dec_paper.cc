#include "common/codec/dec_paper.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/codec/dec_block.h"
#include "common/codec/dec_halves.h"
#include "common/codec/dec_huffman.h"
#include "common/codec/dec_symbols.h"
#include "common/codec/huffman_common.h"

namespace sparkv {
namespace {

class Decoder final : public BlockDecoder {
 public:
  const CodecInfo& info() const override { return info_; }
  absl::Status DecodeBlock(const BlockShape& shape,
                           std::span<const std::span<const uint8_t>> planes, uint16_t* k,
                           uint16_t* v) const override;

 private:
  const CodecInfo info_{.name = "sparkv-paper",
                        .id = 3,
                        .version = 1,
                        .planes = kPaperPlanes,
                        .levels = {{5, 1}, {6, 2}, {7, 3}},
                        .default_level = 5,
                        .lossless = false};
};

absl::Status Decoder::DecodeBlock(const BlockShape& shape,
                                  std::span<const std::span<const uint8_t>> planes, uint16_t* k,
                                  uint16_t* v) const {
  RETURN_IF_ERROR(CheckDecodeCall(info_, shape, planes.size()));
  const uint32_t heads = shape.kv_heads;
  const size_t elements = shape.elements();
  const uint32_t head = shape.tokens * shape.head_dim;
  const auto codes = std::make_unique_for_overwrite<uint8_t[]>(2 * elements);
  std::vector<uint16_t> codebooks;  // [2][heads][2^bits]
  int bits = 0;
  for (size_t p = 0; p < planes.size(); ++p) {
    const int plane = static_cast<int>(p);
    ByteReader reader(planes[p]);
    RETURN_IF_ERROR(ReadPlaneTag(reader, info_, plane));
    if (plane == 0) {
      ASSIGN_OR_RETURN(bits, reader.Read<uint8_t>("sparkv-paper bits"));
      if (bits < 1 || bits > kMaxHuffmanBits) {
        return absl::DataLossError(
            absl::StrCat("sparkv-paper bits are ", bits, "; allowed 1..", kMaxHuffmanBits));
      }
    } else {
      ++bits;
    }
    ASSIGN_OR_RETURN(codebooks,
                     DecodeHalves(reader, 2 * heads, 1u << bits, "sparkv-paper codebooks"));
    if (plane == 0) {
      RETURN_IF_ERROR(DecodeHuffman(reader, elements, bits, "sparkv-paper K codes", codes.get()));
      RETURN_IF_ERROR(
          DecodeHuffman(reader, elements, bits, "sparkv-paper V codes", codes.get() + elements));
    } else {
      RETURN_IF_ERROR(DecodeSymbols(reader, 2 * heads, head, 1, Combine::kAppend,
                                    "sparkv-paper finer codes", codes.get()));
    }
    RETURN_IF_ERROR(CheckPlaneEnd(reader, info_, plane));
  }
  for (size_t i = 0; i < size_t{2} * heads; ++i) {
    const uint16_t* codebook = codebooks.data() + (i << bits);
    const uint8_t* in = codes.get() + i * head;
    uint16_t* out = i < heads ? k + i * head : v + (i - heads) * head;
    for (uint32_t j = 0; j < head; ++j) out[j] = codebook[in[j]];
  }
  return absl::OkStatus();
}

}  // namespace

const BlockDecoder* PaperDecoder() {
  static const Decoder* const decoder = new Decoder;
  return decoder;
}

}  // namespace sparkv
