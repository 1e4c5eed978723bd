// Random rows of every tensor type, for the tests of the kernels.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/gguf_dequant.h"
#include "kernels/half.h"

namespace sparkv::testing {

inline constexpr kernels::GgmlType kAllTypes[] = {
    kernels::GgmlType::kF32,  kernels::GgmlType::kF16,  kernels::GgmlType::kBF16,
    kernels::GgmlType::kQ4_0, kernels::GgmlType::kQ4_1, kernels::GgmlType::kQ5_0,
    kernels::GgmlType::kQ5_1, kernels::GgmlType::kQ8_0, kernels::GgmlType::kQ2_K,
    kernels::GgmlType::kQ3_K, kernels::GgmlType::kQ4_K, kernels::GgmlType::kQ5_K,
    kernels::GgmlType::kQ6_K};

// Offsets of the f16 fields in a block; -1 for none.
inline void HalfFields(kernels::GgmlType type, int out[2]) {
  using kernels::GgmlType;
  out[0] = out[1] = -1;
  switch (type) {
    case GgmlType::kQ4_0:
    case GgmlType::kQ5_0:
    case GgmlType::kQ8_0:
      out[0] = 0;
      break;
    case GgmlType::kQ4_1:
    case GgmlType::kQ5_1:
    case GgmlType::kQ4_K:
    case GgmlType::kQ5_K:
      out[0] = 0;
      out[1] = 2;
      break;
    case GgmlType::kQ2_K:
      out[0] = 80;
      out[1] = 82;
      break;
    case GgmlType::kQ3_K:
      out[0] = 108;
      break;
    case GgmlType::kQ6_K:
      out[0] = 208;
      break;
    default:
      break;
  }
}

// n values, n a multiple of the block. Random packed bits; scales of about `scale`, finite.
inline std::vector<uint8_t> RandomRow(kernels::GgmlType type, size_t n, float scale,
                                      std::mt19937* rng) {
  const kernels::GgmlTypeInfo& info = *kernels::FindGgmlType(static_cast<uint32_t>(type));
  std::vector<uint8_t> row(kernels::RowBytes(info, n));
  std::normal_distribution<float> normal(0.0f, scale);
  for (uint8_t& b : row) b = static_cast<uint8_t>((*rng)());
  const auto put_half = [&](uint8_t* p) {
    const uint16_t half = kernels::FloatToHalf(normal(*rng));
    std::memcpy(p, &half, sizeof(half));
  };
  if (info.block_values == 1) {
    for (size_t i = 0; i < n; ++i) {
      const float value = normal(*rng);
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      if (type == kernels::GgmlType::kF32) std::memcpy(&row[4 * i], &value, sizeof(value));
      if (type == kernels::GgmlType::kF16) put_half(&row[2 * i]);
      if (type == kernels::GgmlType::kBF16)
        std::memcpy(&row[2 * i], reinterpret_cast<char*>(&bits) + 2, 2);
    }
    return row;
  }
  int fields[2];
  HalfFields(type, fields);
  for (size_t block = 0; block < row.size(); block += info.block_bytes) {
    for (const int field : fields) {
      if (field >= 0) put_half(&row[block + static_cast<size_t>(field)]);
    }
  }
  return row;
}

}  // namespace sparkv::testing
