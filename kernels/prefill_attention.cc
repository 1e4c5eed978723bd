#include "kernels/prefill_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/gemm_micro.h"
#include "kernels/row_ops.h"

namespace sparkv::kernels {
namespace {

constexpr size_t kKeyBlock = 256;  // keys of one tile of scores
constexpr size_t kScoreStride =
    kKeyBlock + 16;  // rows a power of two apart would compete for sets of the L1 cache
constexpr size_t kQueryBlock = 192;  // rows of a tile of scores, about: 208 KiB
constexpr size_t kRows = internal::kMicroRows;

static_assert(kKeyPanel == internal::kPanelColumns && kKeyBlock % kKeyPanel == 0);

size_t Padded(size_t dim) { return (dim + kKeyPanel - 1) / kKeyPanel * kKeyPanel; }

}  // namespace

void PackKeys(const float* rows, size_t count, size_t dim, size_t first, float* k) {
  const internal::MicroKernels& micro = internal::BestMicroKernels();
  for (size_t key = 0; key < count; key += kKeyPanel) {
    float* panel = k + (first + key) * dim;
    for (size_t half = 0; half < kKeyPanel; half += 8) {
      if (key + half + 8 <= count) {
        micro.transpose(rows + (key + half) * dim, dim, dim, panel + half);
        continue;
      }
      for (size_t i = 0; i < 8; ++i) {
        const bool inside = key + half + i < count;
        for (size_t d = 0; d < dim; ++d) {
          panel[d * kKeyPanel + half + i] = inside ? rows[(key + half + i) * dim + d] : 0.0f;
        }
      }
    }
  }
}

void PackValues(const float* rows, size_t count, size_t dim, size_t first, size_t capacity,
                float* v) {
  const size_t end = (count + kKeyPanel - 1) / kKeyPanel * kKeyPanel;
  for (size_t d = 0; d < dim; d += kKeyPanel) {
    const size_t width = std::min(kKeyPanel, dim - d);
    float* panel = v + d * capacity + first * kKeyPanel;
    for (size_t key = 0; key < end; ++key, panel += kKeyPanel) {
      const size_t inside = key < count ? width : 0;
      if (inside != 0) std::memcpy(panel, rows + key * dim + d, inside * sizeof(float));
      std::fill(panel + inside, panel + kKeyPanel, 0.0f);
    }
  }
}

size_t PrefillAttentionRows(size_t group) { return std::max<size_t>(1, kQueryBlock / group); }

size_t PrefillAttentionScratchFloats(size_t rows, size_t group, size_t dim) {
  return rows * group * (kScoreStride + Padded(dim) + 2) + internal::kCacheLine / sizeof(float);
}

void PrefillAttention(const PrefillAttentionArgs& args, size_t first, size_t last, float* scratch,
                      float* out, size_t out_stride) {
  const internal::MicroKernels& micro = internal::BestMicroKernels();
  const size_t queries = (last - first) * args.group, dim = args.dim, width = Padded(dim);
  const float* q = args.q + first * args.group * dim;
  float* scores = internal::AlignToLine(scratch);  // [queries][kScoreStride]
  float* mean = scores + queries * kScoreStride;   // [queries][width], not yet divided by sum
  float* max = mean + queries * width;
  float* sum = max + queries;
  std::fill_n(mean, queries * width, 0.0f);
  std::fill_n(max, queries, -INFINITY);
  std::fill_n(sum, queries, 0.0f);
  const auto seen = [&](size_t query) { return args.begin + first + query / args.group + 1; };
  const size_t keys = args.begin + last;
  for (size_t key = 0; key < keys; key += kKeyBlock) {
    // Queries before `from` see none of these keys.
    const size_t from = key < seen(0) ? 0 : (key - (args.begin + first)) * args.group;
    for (size_t row = from; row < queries; row += kRows) {
      const size_t rows = std::min(kRows, queries - row);
      const size_t n =
          std::min(kKeyBlock, seen(row + rows - 1) - key);  // that the last of them sees
      float* tile = scores + row * kScoreStride;
      for (size_t p = 0; p < n; p += kKeyPanel) {
        micro.multiply(q + row * dim, dim, rows, args.k + (key + p) * dim, dim, tile + p,
                       kScoreStride, false);
      }
      for (size_t i = row; i < row + rows; ++i) {
        const size_t visible = std::min(n, seen(i) - std::min(key, seen(i)));
        float* line = scores + i * kScoreStride;
        const float factor = SoftmaxBlock(line, visible, args.scale, &max[i], &sum[i]);
        std::fill(line + visible, line + n, 0.0f);
        if (factor != 1.0f) {
          for (size_t d = 0; d < width; ++d) mean[i * width + d] *= factor;
        }
      }
    }
    for (size_t d = 0; d < width; d += kKeyPanel) {
      const float* panel = args.v + d * args.capacity + key * kKeyPanel;
      for (size_t row = from; row < queries; row += kRows) {
        const size_t rows = std::min(kRows, queries - row);
        const size_t n = std::min(kKeyBlock, seen(row + rows - 1) - key);
        micro.multiply(scores + row * kScoreStride, kScoreStride, rows, panel, n,
                       mean + row * width + d, width, true);
      }
    }
  }
  for (size_t i = 0; i < queries; ++i) {
    const float scale = 1.0f / sum[i];
    float* to = out + (first + i / args.group) * out_stride + i % args.group * dim;
    for (size_t d = 0; d < dim; ++d) to[d] = mean[i * width + d] * scale;
  }
}

void PrefillAttentionScalar(const PrefillAttentionArgs& args, size_t first, size_t last, float* out,
                            size_t out_stride) {
  const size_t dim = args.dim;
  std::vector<double> weight, mean(dim);
  for (size_t r = first; r < last; ++r) {
    for (size_t g = 0; g < args.group; ++g) {
      const float* q = args.q + (r * args.group + g) * dim;
      const size_t keys = args.begin + r + 1;
      weight.assign(keys, 0);
      double max = -INFINITY, sum = 0;
      for (size_t key = 0; key < keys; ++key) {
        const float* k = args.k + key / kKeyPanel * kKeyPanel * dim + key % kKeyPanel;
        for (size_t d = 0; d < dim; ++d) weight[key] += double{q[d]} * k[d * kKeyPanel];
        max = std::max(max, weight[key] *= args.scale);
      }
      std::fill(mean.begin(), mean.end(), 0);
      for (size_t key = 0; key < keys; ++key) {
        const double w = std::exp(weight[key] - max);
        sum += w;
        for (size_t d = 0; d < dim; ++d) {
          mean[d] +=
              w *
              args.v[d / kKeyPanel * kKeyPanel * args.capacity + key * kKeyPanel + d % kKeyPanel];
        }
      }
      for (size_t d = 0; d < dim; ++d)
        out[r * out_stride + g * dim + d] = static_cast<float>(mean[d] / sum);
    }
  }
}

}  // namespace sparkv::kernels
