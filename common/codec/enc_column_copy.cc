#include "common/codec/enc_column_copy.h"

#include "common/base/status.h"

namespace sparkv {

absl::StatusOr<ColumnCopy> ColumnCopy::Of(const KvCache& cache, std::span<const int32_t> tokens,
                                          uint32_t t) {
  const KvGeometry& g = cache.geometry();
  const uint32_t begin = t * kColumnTokens;
  const uint32_t n = ColumnTokens(static_cast<uint32_t>(tokens.size()), t);
  ColumnCopy copy;
  copy.index_ = t;
  copy.shape_ = {g.kv_heads, n, g.head_dim};
  copy.tokens_ = tokens.subspan(begin, n);
  for (uint32_t layer = 0; layer < g.layers; ++layer) {
    copy.k_.emplace_back(copy.shape_.elements());
    copy.v_.emplace_back(copy.shape_.elements());
    RETURN_IF_ERROR(
        cache.ExportBlock(layer, begin, n, copy.k_.back().data(), copy.v_.back().data()));
    copy.k_of_layer_.push_back(copy.k_.back().data());
    copy.v_of_layer_.push_back(copy.v_.back().data());
  }
  return copy;
}

ColumnInput ColumnCopy::input() const {
  return {.shape = shape_,
          .first_token = index_ * kColumnTokens,
          .tokens = tokens_,
          .k = k_of_layer_,
          .v = v_of_layer_};
}

}  // namespace sparkv
