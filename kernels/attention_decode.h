// Attention of a few query vectors over rows of one KV head as they are stored: the memory-bound
// case of decode.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparkv::kernels {

// Rows of one AttendRows call at most.
inline constexpr size_t kAttendRows = 64;

// The state of an online softmax over the keys seen so far, one per query vector of the group.
struct AttentionState {
  float* max;   // [group], -inf before the first row
  float* sum;   // [group], 0 before
  float* mean;  // [group][dim], the weighted sum of V rows, not yet divided by sum; 0 before
};

// Adds `rows` <= kAttendRows rows of K and V ([rows][dim] each, f16 bits or f32) to the state of
// `group` query vectors q [group][dim]; each K and V value is loaded once for the whole group.
void AttendRowsF16(const float* q, size_t group, const uint16_t* k, const uint16_t* v, size_t rows,
                   size_t dim, float scale, const AttentionState& state);
void AttendRowsF32(const float* q, size_t group, const float* k, const float* v, size_t rows,
                   size_t dim, float scale, const AttentionState& state);

// The scalar twin, over f32 rows.
void AttendRowsScalar(const float* q, size_t group, const float* k, const float* v, size_t rows,
                      size_t dim, float scale, const AttentionState& state);

}  // namespace sparkv::kernels
