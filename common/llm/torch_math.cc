#include "common/llm/torch_math.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "kernels/row_ops.h"

namespace sparkv::torch_math {
namespace {

at::Tensor View(const float* data, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::from_blob(const_cast<float*>(data), sizes, strides, at::TensorOptions(at::kFloat));
}

// Runs fn with autograd off and turns exceptions into a Status: none leaves this file.
template <typename Fn>
absl::Status Guarded(const char* what, Fn fn) {
  try {
    c10::InferenceMode inference;
    fn();
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(std::string(what) + ": out of memory");
  } catch (const std::exception& e) {
    const std::string text = e.what();
    const std::string message = std::string(what) + ": " + text.substr(0, text.find('\n'));
    if (text.find("DefaultCPUAllocator") != std::string::npos) {
      return absl::ResourceExhaustedError(message);
    }
    return absl::InternalError(message);
  } catch (...) {
    return absl::InternalError(std::string(what) + ": unknown exception");
  }
}

}  // namespace

void SetThreads(int threads) { at::set_num_threads(std::max(1, threads)); }

namespace {

constexpr size_t kKeyBlock = 256;  // keys of one tile
constexpr size_t kQueryBlock =
    192;  // query rows times group of one tile, about; a tile of scores stays in the L2 cache
constexpr size_t kUnitsPerThread = 6;  // units of work that balance the threads

// One thread's buffers.
struct Tile {
  Tile(size_t queries, size_t dim)
      : scores(queries * kKeyBlock), acc(queries * dim), max(queries), sum(queries) {}
  std::vector<float> scores, acc, max, sum;
};

// Tokens [first, last) of one KV head against all keys that they see.
void AttendUnit(const AttentionArgs& a, size_t head, size_t first, size_t last, Tile* tile,
                float* out, size_t out_stride) {
  const size_t queries = (last - first) * a.group;
  const auto dim = static_cast<int64_t>(a.dim);
  const at::Tensor q = View(a.q + (head * a.rows + first) * a.group * a.dim,
                            {static_cast<int64_t>(queries), dim}, {dim, 1});
  at::Tensor acc = View(tile->acc.data(), {static_cast<int64_t>(queries), dim}, {dim, 1});
  std::fill_n(tile->acc.begin(), queries * a.dim, 0.0f);
  std::fill_n(tile->max.begin(), queries, -INFINITY);
  std::fill_n(tile->sum.begin(), queries, 0.0f);
  const size_t keys = a.begin + last;
  for (size_t key = 0; key < keys; key += kKeyBlock) {
    const size_t n = std::min(kKeyBlock, keys - key);
    const auto width = static_cast<int64_t>(n);
    const float* k = a.k + head * a.k_head_stride + key * a.dim;
    const float* v = a.v + head * a.v_head_stride + key * a.dim;
    at::Tensor scores = View(tile->scores.data(), {static_cast<int64_t>(queries), width},
                             {static_cast<int64_t>(kKeyBlock), 1});
    at::mm_out(scores, q, View(k, {dim, width}, {1, dim}));
    for (size_t i = 0; i < queries; ++i) {
      // Keys of this block that the row sees: none in a block that begins behind it.
      const size_t seen = a.begin + first + i / a.group + 1;
      const size_t visible = seen <= key ? 0 : std::min(n, seen - key);
      float* row = tile->scores.data() + i * kKeyBlock;
      const float factor =
          kernels::SoftmaxBlock(row, visible, a.scale, &tile->max[i], &tile->sum[i]);
      std::fill(row + visible, row + n, 0.0f);
      if (factor != 1.0f) {
        float* mean = tile->acc.data() + i * a.dim;
        for (size_t j = 0; j < a.dim; ++j) mean[j] *= factor;
      }
    }
    at::addmm_out(acc, acc, scores, View(v, {width, dim}, {dim, 1}));
  }
  for (size_t i = 0; i < queries; ++i) {
    const float scale = 1.0f / tile->sum[i];
    const float* from = tile->acc.data() + i * a.dim;
    float* to = out + (first + i / a.group) * out_stride + (head * a.group + i % a.group) * a.dim;
    for (size_t j = 0; j < a.dim; ++j) to[j] = from[j] * scale;
  }
}

}  // namespace

absl::Status CausalAttention(const AttentionArgs& args, float* out, size_t out_stride) {
  return Guarded("attention", [&] {
    const auto threads = static_cast<size_t>(at::get_num_threads());
    const size_t most =
        std::max<size_t>(1, args.rows * args.kv_heads / (kUnitsPerThread * threads));
    const size_t tokens =
        std::clamp<size_t>(kQueryBlock / args.group, 1, std::max<size_t>(16, most));
    const size_t blocks = (args.rows + tokens - 1) / tokens;
    const size_t units = blocks * args.kv_heads;
    // The latest tokens see the most keys: they go first, and each thread takes the next when it is
    // done.
    std::atomic<size_t> next{0};
    at::parallel_for(
        0, static_cast<int64_t>(std::min(threads, units)), 1, [&](int64_t from, int64_t to) {
          c10::InferenceMode inference;
          Tile tile(std::min(tokens, args.rows) * args.group, args.dim);
          for (; from < to; ++from) {
            for (size_t unit = next++; unit < units; unit = next++) {
              const size_t block = blocks - 1 - unit / args.kv_heads;
              AttendUnit(args, unit % args.kv_heads, block * tokens,
                         std::min(args.rows, (block + 1) * tokens), &tile, out, out_stride);
            }
          }
        });
  });
}

}  // namespace sparkv::torch_math
