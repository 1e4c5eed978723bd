#include "common/llm/torch_math.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string>

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

absl::Status GemmNT(const float* x, size_t ldx, const float* w, size_t ldw, float* y, size_t ldy,
                    size_t m, size_t n, size_t k, bool accumulate) {
  if (m == 0 || n == 0) return absl::OkStatus();
  return Guarded("GEMM", [&] {
    const auto M = static_cast<int64_t>(m), N = static_cast<int64_t>(n), K = static_cast<int64_t>(k);
    const at::Tensor a = View(x, {M, K}, {static_cast<int64_t>(ldx), 1});
    const at::Tensor bt = View(w, {K, N}, {1, static_cast<int64_t>(ldw)});
    at::Tensor c = View(y, {M, N}, {static_cast<int64_t>(ldy), 1});
    if (accumulate) {
      at::addmm_out(c, c, a, bt);
    } else {
      at::mm_out(c, a, bt);
    }
  });
}

absl::Status Attention(const AttentionArgs& args,
                       const std::function<void(const float* out, const float* lse)>& use) {
  return Guarded("attention", [&] {
    const auto kv_heads = static_cast<int64_t>(args.kv_heads);
    const auto group = static_cast<int64_t>(args.group);
    const auto rows = static_cast<int64_t>(args.rows), keys = static_cast<int64_t>(args.keys);
    const auto dim = static_cast<int64_t>(args.dim);
    const auto head_stride = static_cast<int64_t>(args.kv_head_stride);
    // KV heads are the batch, so that a group shares its K and V by a stride of 0 and nothing is copied.
    const at::Tensor q = View(args.q, {kv_heads, group, rows, dim},
                              {group * rows * dim, rows * dim, dim, 1});
    const at::Tensor k = View(args.k, {kv_heads, group, keys, dim}, {head_stride, 0, dim, 1});
    const at::Tensor v = View(args.v, {kv_heads, group, keys, dim}, {head_stride, 0, dim, 1});
    auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, args.causal, {},
                                                                      args.scale);
    // The kernel stores rows before heads and returns transposed views: contiguous() copies nothing then.
    const at::Tensor out_rows = out.transpose(1, 2).contiguous();
    const at::Tensor lse_rows = lse.transpose(1, 2).contiguous();
    use(out_rows.data_ptr<float>(), lse_rows.data_ptr<float>());
  });
}

}  // namespace sparkv::torch_math
