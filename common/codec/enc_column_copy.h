// One column of a KV cache, copied out for encoding: the cache may grow meanwhile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/codec/enc_codec.h"
#include "common/kv/kv_cache.h"

namespace sparkv {

class ColumnCopy {
 public:
  ColumnCopy() = default;
  // Column t of a context of `tokens`, which must outlive it; the cache must hold the column's
  // rows. FailedPrecondition for an f32 cache.
  static absl::StatusOr<ColumnCopy> Of(const KvCache& cache, std::span<const int32_t> tokens,
                                       uint32_t t);

  // Points into this copy and the context's tokens.
  ColumnInput input() const;
  uint32_t index() const { return index_; }
  // [kv_heads][tokens][head_dim] f16 bits.
  std::span<const uint16_t> k(uint32_t layer) const { return k_[layer]; }
  std::span<const uint16_t> v(uint32_t layer) const { return v_[layer]; }

 private:
  uint32_t index_ = 0;
  BlockShape shape_;
  std::span<const int32_t> tokens_;  // the column's
  std::vector<std::vector<uint16_t>> k_, v_;
  std::vector<const uint16_t*> k_of_layer_, v_of_layer_;
};

}  // namespace sparkv
