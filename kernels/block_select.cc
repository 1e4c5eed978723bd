#include "kernels/block_select.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/cpu_features.h"
#include "kernels/exp_avx2.h"
#include "kernels/gemm_micro.h"
#include "kernels/half.h"
#include "kernels/row_ops.h"

namespace sparkv::kernels {
namespace {

constexpr size_t kMaxDim = 256;  // of rows that the AVX2 body pools in its own memory

#if defined(__x86_64__)
SPARKV_AVX2 float PoolRowsAvx2(const float* rows, size_t stride, size_t count, size_t dim,
                               float* mean) {
  alignas(32) float sum[kMaxDim] = {}, unit[kMaxDim] = {};
  for (size_t r = 0; r < count; ++r, rows += stride) {
    __m256 square = _mm256_setzero_ps();
    for (size_t i = 0; i < dim; i += 8) {
      const __m256 x = _mm256_loadu_ps(rows + i);
      square = _mm256_fmadd_ps(x, x, square);
    }
    const float length = std::sqrt(internal::Sum8(square));
    const __m256 inverse = _mm256_set1_ps(length == 0.0f ? 0.0f : 1.0f / length);
    for (size_t i = 0; i < dim; i += 8) {
      const __m256 x = _mm256_loadu_ps(rows + i);
      _mm256_store_ps(sum + i, _mm256_add_ps(_mm256_load_ps(sum + i), x));
      _mm256_store_ps(unit + i, _mm256_fmadd_ps(x, inverse, _mm256_load_ps(unit + i)));
    }
  }
  __m256 square = _mm256_setzero_ps();
  const float n = static_cast<float>(count);
  for (size_t i = 0; i < dim; i += 8) {
    const __m256 u = _mm256_load_ps(unit + i);
    square = _mm256_fmadd_ps(u, u, square);
    _mm256_storeu_ps(mean + i, _mm256_div_ps(_mm256_load_ps(sum + i), _mm256_set1_ps(n)));
  }
  return internal::Sum8(square) / (n * n);
}

SPARKV_AVX2 float DotAvx2(const float* a, const float* b, size_t dim) {
  __m256 sum = _mm256_setzero_ps();
  for (size_t i = 0; i < dim; i += 8)
    sum = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), sum);
  return internal::Sum8(sum);
}
#endif

float Dot(const float* a, const float* b, size_t dim) {
#if defined(__x86_64__)
  if (HasAvx2() && dim % 8 == 0) return DotAvx2(a, b, dim);
#endif
  float sum = 0;
  for (size_t i = 0; i < dim; ++i) sum += a[i] * b[i];
  return sum;
}

// The key blocks that rows [first, last) see, and the first of those at their own positions.
struct Sight {
  size_t blocks, diagonal;
};
Sight SightOf(const BlockAttentionArgs& a, size_t query_block) {
  const size_t first = query_block * kQueryBlock;
  const size_t last = std::min(a.rows, first + kQueryBlock);
  return {(a.begin + last - 1) / kKeyBlock + 1, (a.begin + first) / kKeyBlock};
}

// score [blocks] of pooled keys, visit [blocks] those that are visited anyway: as well the heaviest
// others until tau of the softmax's mass is visited. Blocks whose score is -inf take no part.
template <typename Float>
void SelectByMass(Float* score, size_t blocks, double tau, std::vector<uint8_t>* visit) {
  Float max = -INFINITY;
  for (size_t b = 0; b < blocks; ++b) max = std::max(max, score[b]);
  if (max == -INFINITY) return;
  double sum = 0, mass = 0;
  for (size_t b = 0; b < blocks; ++b) sum += score[b] = std::exp(score[b] - max);
  std::vector<uint32_t> order;
  for (size_t b = 0; b < blocks; ++b) {
    if ((*visit)[b] != 0) {
      mass += score[b];
    } else {
      order.push_back(static_cast<uint32_t>(b));
    }
  }
  std::sort(order.begin(), order.end(), [&](uint32_t x, uint32_t y) {
    return score[x] != score[y] ? score[x] > score[y] : x < y;
  });
  for (size_t i = 0; i < order.size() && mass < tau * sum; ++i) {
    mass += score[order[i]];
    (*visit)[order[i]] = 1;
  }
}

void Append(const std::vector<uint8_t>& visit, std::vector<uint32_t>* blocks) {
  for (size_t b = 0; b < visit.size(); ++b) {
    if (visit[b] != 0) blocks->push_back(static_cast<uint32_t>(b));
  }
}

absl::Status CheckSelection(const BlockAttentionArgs& args, const SelectOptions& options) {
  if (!(options.tau >= 0 && options.tau <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("block selection: tau is ", options.tau, ", allowed: 0..1"));
  }
  if (!(options.theta >= -1) || std::isinf(options.theta)) {
    return absl::InvalidArgumentError(
        absl::StrCat("block selection: theta is ", options.theta, ", allowed: -1 or more"));
  }
  float nothing = 0;
  BlockAttentionArgs without = args;  // what is not read may be anything
  without.lists = {};
  without.out = &nothing;
  without.out_head_stride = args.kv.dim;
  without.out_row_stride = args.heads * args.kv.dim;
  return CheckBlockAttention(without);
}

}  // namespace

float PoolRowsScalar(const float* rows, size_t stride, size_t count, size_t dim, float* mean) {
  std::vector<double> sum(dim), unit(dim);
  for (size_t r = 0; r < count; ++r, rows += stride) {
    double square = 0;
    for (size_t i = 0; i < dim; ++i) square += double{rows[i]} * rows[i];
    for (size_t i = 0; i < dim; ++i) {
      sum[i] += rows[i];
      if (square != 0) unit[i] += rows[i] / std::sqrt(square);
    }
  }
  const double n = static_cast<double>(count);
  for (size_t i = 0; i < dim; ++i) mean[i] = static_cast<float>(sum[i] / n);
  return static_cast<float>(std::inner_product(unit.begin(), unit.end(), unit.begin(), 0.0) /
                            (n * n));
}

float PoolRows(const float* rows, size_t stride, size_t count, size_t dim, float* mean) {
#if defined(__x86_64__)
  if (HasAvx2() && dim % 8 == 0 && dim <= kMaxDim)
    return PoolRowsAvx2(rows, stride, count, dim, mean);
#endif
  return PoolRowsScalar(rows, stride, count, dim, mean);
}

void SelectBlocksOf(const BlockAttentionArgs& args, const PooledKeys& keys,
                    const SelectOptions& options, size_t head, size_t query_block,
                    std::vector<uint32_t>* blocks) {
  const size_t dim = args.kv.dim, kv_head = head / (args.heads / args.kv.kv_heads);
  const size_t first = query_block * kQueryBlock;
  const Sight sight = SightOf(args, query_block);
  std::vector<float> mean(dim), score(sight.blocks, -INFINITY);
  std::vector<uint8_t> visit(sight.blocks, 1);
  const float similarity =
      PoolRows(args.q + head * args.q_head_stride + first * args.q_row_stride, args.q_row_stride,
               std::min(kQueryBlock, args.rows - first), dim, mean.data());
  if (similarity >= options.theta) {
    for (size_t b = 0; b < sight.blocks; ++b) {
      const size_t at = kv_head * keys.capacity + b;
      if (!(keys.similarity[at] >= options.theta)) continue;
      const float s = Dot(mean.data(), keys.mean + at * dim, dim) * args.scale;
      if (!std::isfinite(s)) continue;
      score[b] = s;
      visit[b] = b == 0 || b >= sight.diagonal;
    }
    SelectByMass(score.data(), sight.blocks, options.tau, &visit);
  }
  Append(visit, blocks);
}

absl::Status SelectBlocks(const BlockAttentionArgs& args, const SelectOptions& options,
                          SelectedBlocks* selected, const RunUnits& run) {
  if (absl::Status s = CheckSelection(args, options); !s.ok()) return s;
  const size_t dim = args.kv.dim, key_blocks = args.key_blocks(),
               lists = args.heads * args.query_blocks();
  selected->begin.assign(lists + 1, 0);
  selected->blocks.clear();
  if (args.rows == 0) return absl::OkStatus();
  const RunUnits each = OrInTurn(run);
  std::vector<float> mean(args.kv.kv_heads * key_blocks * dim);
  std::vector<float> similarity(args.kv.kv_heads * key_blocks);
  each(similarity.size(), [&](size_t unit) {
    const size_t head = unit / key_blocks, page = unit % key_blocks;
    const size_t count = std::min(kKeyBlock, args.begin + args.rows - page * kKeyBlock);
    std::vector<float> rows(count * dim);
    HalfToFloat(args.kv.k[page] + head * args.kv.head_stride, rows.data(), rows.size());
    similarity[unit] = PoolRows(rows.data(), dim, count, dim, &mean[unit * dim]);
  });
  const PooledKeys keys = {mean.data(), similarity.data(), key_blocks};
  std::vector<std::vector<uint32_t>> of_list(lists);
  each(lists, [&](size_t list) {
    SelectBlocksOf(args, keys, options, list / args.query_blocks(), list % args.query_blocks(),
                   &of_list[list]);
  });
  for (size_t list = 0; list < lists; ++list) {
    selected->blocks.insert(selected->blocks.end(), of_list[list].begin(), of_list[list].end());
    selected->begin[list + 1] = static_cast<uint32_t>(selected->blocks.size());
  }
  return absl::OkStatus();
}

absl::Status SelectBlocksScalar(const BlockAttentionArgs& args, const SelectOptions& options,
                                SelectedBlocks* selected) {
  if (absl::Status s = CheckSelection(args, options); !s.ok()) return s;
  const size_t dim = args.kv.dim;
  selected->begin.assign(1, 0);
  selected->blocks.clear();
  for (size_t h = 0; h < args.heads; ++h) {
    const size_t head = h / (args.heads / args.kv.kv_heads) * args.kv.head_stride;
    for (size_t block = 0; block < args.query_blocks(); ++block) {
      const Sight sight = SightOf(args, block);
      const size_t first = block * kQueryBlock;
      std::vector<float> query(dim), key(dim), rows(kKeyBlock * dim);
      std::vector<double> score(sight.blocks, -INFINITY);
      std::vector<uint8_t> visit(sight.blocks, 1);
      const float similarity = PoolRowsScalar(
          args.q + h * args.q_head_stride + first * args.q_row_stride, args.q_row_stride,
          std::min(kQueryBlock, args.rows - first), dim, query.data());
      for (size_t b = 0; b < sight.blocks && similarity >= options.theta; ++b) {
        const size_t count = std::min(kKeyBlock, args.begin + args.rows - b * kKeyBlock);
        HalfToFloatScalar(args.kv.k[b] + head, rows.data(), count * dim);
        if (!(PoolRowsScalar(rows.data(), dim, count, dim, key.data()) >= options.theta)) continue;
        double s = 0;
        for (size_t i = 0; i < dim; ++i) s += double{query[i]} * key[i];
        if (!std::isfinite(s * args.scale)) continue;
        score[b] = s * args.scale;
        visit[b] = b == 0 || b >= sight.diagonal;
      }
      if (similarity >= options.theta)
        SelectByMass(score.data(), sight.blocks, options.tau, &visit);
      Append(visit, &selected->blocks);
      selected->begin.push_back(static_cast<uint32_t>(selected->blocks.size()));
    }
  }
  return absl::OkStatus();
}

size_t ActiveBlocksScratchFloats(const BlockAttentionArgs& args) {
  return (kMassRows + 1) * args.key_blocks() * kKeyBlock;
}

size_t ActiveBlocks(const BlockAttentionArgs& args, const KvPanels& panels, size_t head,
                    size_t query_block, float share, float* scratch) {
  const internal::MicroKernels& micro = internal::BestMicroKernels();
  static_assert(kMassRows <= internal::kMicroRows);
  const size_t dim = args.kv.dim, blocks = SightOf(args, query_block).blocks;
  const size_t first = query_block * kQueryBlock, count = std::min(kQueryBlock, args.rows - first);
  const size_t rows = std::min(kMassRows, count), step = count / rows;
  const size_t row = first + (count - 1 - (rows - 1) * step) / 2;  // the first one taken
  const float* q = args.q + head * args.q_head_stride + row * args.q_row_stride;
  const float* k = panels.k + head / (args.heads / args.kv.kv_heads) * panels.k_head_stride;
  const size_t stride = args.key_blocks() * kKeyBlock;
  const size_t last = args.begin + row + (rows - 1) * step + 1;  // keys that the last row sees
  for (size_t key = 0; key < last; key += kKeyPanel) {
    micro.multiply(q, step * args.q_row_stride, rows, k + key * dim, dim, scratch + key, stride,
                   false);
  }
  float* mass = scratch + rows * stride;
  std::fill_n(mass, blocks, 0.0f);
  for (size_t i = 0; i < rows; ++i) {
    const size_t seen = args.begin + row + i * step + 1;
    float* line = scratch + i * stride;
    float max = -INFINITY, sum = 0;
    SoftmaxBlock(line, seen, args.scale, &max, &sum);
    if (!std::isfinite(sum)) continue;
    for (size_t key = 0; key < seen; ++key) mass[key / kKeyBlock] += line[key] / sum;
  }
  std::sort(mass, mass + blocks, std::greater<float>());
  const double total = std::accumulate(mass, mass + blocks, 0.0);
  double held = 0;
  size_t n = 0;
  while (n < blocks && (n == 0 || held < double{share} * total)) held += mass[n++];
  return n;
}

}  // namespace sparkv::kernels
