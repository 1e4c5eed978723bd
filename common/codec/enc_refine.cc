#include "common/codec/enc_refine.h"

#include <algorithm>
#include <vector>

#include "common/codec/enc_symbols.h"
#include "common/codec/refine_common.h"

namespace sparkv {

void EncodeRefinement(size_t n, int ways, const uint8_t* finer, uint8_t* codes, ByteWriter& out) {
  const size_t run = std::min(n, kRefineRun);
  const size_t runs = (n + run - 1) / run;
  std::vector<uint8_t> symbols(runs * run);
  ForEachRefined(codes, n, [&](size_t i, size_t place) {
    symbols[place] = static_cast<uint8_t>(finer[i] - codes[i] * ways);
    codes[i] = finer[i];
  });
  EncodeSymbols(static_cast<uint32_t>(runs), static_cast<uint32_t>(run), RefineBits(ways),
                symbols.data(), out);
}

}  // namespace sparkv
