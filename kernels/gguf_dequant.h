// Tensor types of GGUF files and their expansion to f32.
//
// Every quantized type stores blocks of `block_values` consecutive values of a row in `block_bytes`
// bytes. The layouts are those of the ggml library, version 2 of each quantization ("k-quants" for
// *_K).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace sparkv::kernels {

// The numbers are those of the file format.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct GgmlTypeInfo {
  GgmlType type;
  const char* name;
  uint32_t block_values;
  uint32_t block_bytes;
};

// Null for a type that this build does not support.
const GgmlTypeInfo* FindGgmlType(uint32_t type);

// Bytes of a row of n values; n must be a multiple of the type's block.
inline uint64_t RowBytes(const GgmlTypeInfo& info, uint64_t n) {
  return n / info.block_values * info.block_bytes;
}

// dst[0..n) = the values of the row at src (RowBytes bytes; unaligned allowed). InvalidArgument
// when n is not a multiple of the type's block; Unimplemented for an unknown type. Uses AVX2 where
// it is there; for finite scales the scalar twin gives the same values to the last bit.
absl::Status DequantizeRow(GgmlType type, const void* src, float* dst, size_t n);

// The scalar twin.
absl::Status DequantizeRowScalar(GgmlType type, const void* src, float* dst, size_t n);

}  // namespace sparkv::kernels
