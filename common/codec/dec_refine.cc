#include "common/codec/dec_refine.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/codec/dec_symbols.h"
#include "common/codec/refine_common.h"

namespace sparkv {

absl::Status DecodeRefinement(ByteReader& reader, size_t n, int ways, std::string_view what,
                              uint8_t* codes) {
  const size_t run = std::min(n, kRefineRun);
  const size_t runs = (n + run - 1) / run;
  const auto symbols = std::make_unique_for_overwrite<uint8_t[]>(runs * run);
  RETURN_IF_ERROR(DecodeSymbols(reader, static_cast<uint32_t>(runs), static_cast<uint32_t>(run),
                                RefineBits(ways), Combine::kReplace, what, symbols.get()));
  if (std::any_of(symbols.get() + n, symbols.get() + runs * run,
                  [](uint8_t s) { return s != 0; })) {
    return absl::DataLossError(absl::StrCat(std::string(what), ": filling symbols are not 0"));
  }
  if (ways != 1 << RefineBits(ways)) {
    const uint8_t largest = *std::max_element(symbols.get(), symbols.get() + n);
    if (largest >= ways) {
      return absl::DataLossError(
          absl::StrCat(std::string(what), ": symbol ", largest, "; allowed 0..", ways - 1));
    }
  }
  ForEachRefined(codes, n, [&](size_t i, size_t place) {
    codes[i] = static_cast<uint8_t>(codes[i] * ways + symbols[place]);
  });
  return absl::OkStatus();
}

}  // namespace sparkv
