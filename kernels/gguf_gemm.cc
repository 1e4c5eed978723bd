#include "kernels/gguf_gemm.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/gemm_micro.h"

namespace sparkv::kernels {
namespace {

constexpr size_t kRows = internal::kMicroRows;
constexpr size_t kMaxDepth =
    288;  // values of k in a panel: 18 KiB of W and the rows of X stay in the L1 cache
constexpr size_t kBlockRows =
    48;  // of X that stay in the L2 cache while a tile of W goes over them
constexpr size_t kLine = internal::kCacheLine;

static_assert(kGemmColumns == internal::kPanelColumns && kGemmTileColumns % kGemmColumns == 0);

// Values of k in a panel: as equal as the type's blocks allow. The last panel of a row may hold
// fewer.
size_t Depth(size_t block, size_t k) {
  const size_t parts = (k + kMaxDepth - 1) / kMaxDepth;
  const size_t even = (k + parts - 1) / std::max<size_t>(1, parts);
  const size_t most = std::max(block, kMaxDepth / block * block);
  return std::min(most, (even + block - 1) / block * block);
}

struct Twin {
  absl::Status (*dequantize)(GgmlType, const void*, float*, size_t);
  const internal::MicroKernels& micro;
};

// Panels [columns / 16, rounded up][depth][16] of W's rows [column, column + columns), values [k, k
// + depth) of each. Columns behind the last are 0.
absl::Status PackTile(const Twin& twin, const GemmArgs& args, const GgmlTypeInfo& info,
                      size_t column, size_t columns, size_t k, size_t depth, float* rows,
                      float* panels) {
  const size_t row_bytes = args.w_stride > 0 ? args.w_stride : RowBytes(info, args.k);
  const size_t skip = RowBytes(info, k);
  for (size_t c = 0; c < columns; c += 8) {
    for (size_t i = 0; i < 8; ++i) {
      if (c + i >= columns) {
        std::memset(rows + i * depth, 0, depth * sizeof(float));
        continue;
      }
      const absl::Status status = twin.dequantize(
          args.type, static_cast<const uint8_t*>(args.w) + (column + c + i) * row_bytes + skip,
          rows + i * depth, depth);
      if (!status.ok()) return status;
    }
    twin.micro.transpose(rows, depth, depth,
                         panels + c / kGemmColumns * depth * kGemmColumns + c % kGemmColumns);
  }
  if ((columns + 7) / 8 % 2 != 0) {  // the last panel's other half
    float* half = panels + columns / kGemmColumns * depth * kGemmColumns + 8;
    for (size_t p = 0; p < depth; ++p) std::memset(half + p * kGemmColumns, 0, 8 * sizeof(float));
  }
  return absl::OkStatus();
}

absl::Status Run(const Twin& twin, const GemmArgs& args, size_t begin, size_t end, float* scratch) {
  const GgmlTypeInfo* info = FindGgmlType(static_cast<uint32_t>(args.type));
  if (info == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("tensor type ", static_cast<uint32_t>(args.type), " is not supported"));
  }
  if (args.k == 0 || args.k % info->block_values != 0) {
    return absl::InvalidArgumentError(absl::StrCat("rows of ", args.k, " values of type ",
                                                   std::string(info->name),
                                                   ", allowed: multiples of ", info->block_values));
  }
  const size_t depth = Depth(info->block_values, args.k);
  // Loads of a panel must not straddle cache lines.
  float* tile = internal::AlignToLine(scratch);
  float* rows = tile + kGemmTileColumns * depth;
  for (size_t column = begin; column < end; column += kGemmTileColumns) {
    const size_t columns = std::min(kGemmTileColumns, end - column);
    for (size_t k = 0; k < args.k; k += depth) {
      const size_t n = std::min(depth, args.k - k);
      const absl::Status status = PackTile(twin, args, *info, column, columns, k, n, rows, tile);
      if (!status.ok()) return status;
      const bool add = args.accumulate || k > 0;
      for (size_t block = 0; block < args.m; block += kBlockRows) {
        const size_t last = std::min(args.m, block + kBlockRows);
        for (size_t c = 0; c < columns; c += kGemmColumns) {
          const float* panel = tile + c * n;
          const size_t width = std::min(kGemmColumns, columns - c);
          for (size_t row = block; row < last; row += kRows) {
            const size_t height = std::min(kRows, last - row);
            const float* x = args.x + row * args.ldx + k;
            float* y = args.y + row * args.ldy + column + c;
            if (width == kGemmColumns) {
              twin.micro.multiply(x, args.ldx, height, panel, n, y, args.ldy, add);
              continue;
            }
            float edge[kRows * kGemmColumns];
            twin.micro.multiply(x, args.ldx, height, panel, n, edge, kGemmColumns, false);
            for (size_t i = 0; i < height; ++i) {
              for (size_t j = 0; j < width; ++j) {
                float& to = y[i * args.ldy + j];
                to = add ? to + edge[i * kGemmColumns + j] : edge[i * kGemmColumns + j];
              }
            }
          }
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

size_t GemmStride(size_t k) {
  constexpr size_t kSetBytes =
      4096;  // addresses that far apart share a set, in all L1 caches of today
  const auto compete = [](size_t stride) {
    for (size_t i = 1; i < kRows; ++i) {
      const size_t apart = i * stride * sizeof(float) % kSetBytes;
      if (apart < 2 * kLine || apart > kSetBytes - 2 * kLine) return true;
    }
    return false;
  };
  size_t stride = k;
  for (size_t tries = 0; tries < kSetBytes / kLine && compete(stride); ++tries)
    stride += kLine / sizeof(float);
  return stride;
}

size_t GemmScratchFloats(GgmlType type, size_t k) {
  const GgmlTypeInfo* info = FindGgmlType(static_cast<uint32_t>(type));
  const size_t depth = Depth(info == nullptr ? 1 : info->block_values, k);
  return (8 + kGemmTileColumns) * depth + kLine / sizeof(float);
}

absl::Status GgufGemm(const GemmArgs& args, size_t column_begin, size_t column_end,
                      float* scratch) {
  return Run({DequantizeRow, internal::BestMicroKernels()}, args, column_begin, column_end,
             scratch);
}

absl::Status GgufGemmScalar(const GemmArgs& args, size_t column_begin, size_t column_end,
                            float* scratch) {
  return Run({DequantizeRowScalar, internal::kScalarMicroKernels}, args, column_begin, column_end,
             scratch);
}

}  // namespace sparkv::kernels
