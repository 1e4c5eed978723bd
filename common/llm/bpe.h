// Byte-pair merges of one word (Sennrich et al. 2016): the pair of the lowest rank first, the
// leftmost of equal ones.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/cancel.h"

namespace sparkv {

// Filled once, then immutable and thread-safe.
class Bpe {
 public:
  static constexpr int32_t kNoToken = -1;

  Bpe();
  // The token of a single byte; kNoToken (the start) for a byte that the vocabulary lacks.
  void SetByte(uint8_t byte, int32_t id) { byte_ids_[byte] = id; }
  int32_t byte_id(uint8_t byte) const { return byte_ids_[byte]; }
  void ReserveMerges(size_t count) { merges_.reserve(count); }
  // `left` beside `right` becomes `merged`. Of two merges of the same pair the first added counts.
  void AddMerge(int32_t left, int32_t right, int32_t rank, int32_t merged);

  // Appends the word's ids. A byte without a token is left out, and nothing merges across it. O(n
  // log n), and about 24 bytes of memory for each byte of the word. False, and nothing appended,
  // when `cancelled` said so.
  bool Encode(std::string_view word, const CancelledFn& cancelled, std::vector<int32_t>* out) const;

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  const Merge* Find(int32_t left, int32_t right) const;  // null when they don't merge
  void EncodeShort(std::string_view word, std::vector<int32_t>* out) const;
  bool EncodeLong(std::string_view word, const CancelledFn& cancelled,
                  std::vector<int32_t>* out) const;

  int32_t byte_ids_[256];
  absl::flat_hash_map<uint64_t, Merge> merges_;  // by left << 32 | right
};

}  // namespace sparkv
