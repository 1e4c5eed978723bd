#include "common/codec/dec_halves.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/codec/dec_symbols.h"

namespace sparkv {

absl::StatusOr<std::vector<uint16_t>> DecodeHalves(ByteReader& reader, uint32_t runs,
                                                   uint32_t length, std::string_view what) {
  const size_t n = size_t{runs} * length;
  const auto bytes = std::make_unique_for_overwrite<uint8_t[]>(2 * n);
  RETURN_IF_ERROR(DecodeSymbols(reader, 2 * runs, length, 8, Combine::kReplace, what, bytes.get()));
  std::vector<uint16_t> halves(n);
  for (uint32_t r = 0; r < runs; ++r) {
    const uint8_t* low = bytes.get() + size_t{2} * r * length;
    const uint8_t* high = low + length;
    uint16_t* out = halves.data() + size_t{r} * length;
    for (uint32_t i = 0; i < length; ++i) {
      out[i] = static_cast<uint16_t>(low[i] | high[i] << 8);
      if ((out[i] & 0x7C00) == 0x7C00) {
        return absl::DataLossError(
            absl::StrCat(std::string(what), ": number ", i, " of run ", r, " is not finite"));
      }
    }
  }
  return halves;
}

absl::Status CheckNoSign(std::span<const uint16_t> halves, std::string_view what) {
  for (size_t i = 0; i < halves.size(); ++i) {
    if ((halves[i] & 0x8000) == 0) continue;
    return absl::DataLossError(absl::StrCat(std::string(what), ": number ", i, " is negative"));
  }
  return absl::OkStatus();
}

}  // namespace sparkv
