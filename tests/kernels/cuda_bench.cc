// Speeds of the CUDA kernels on this machine's GPU, as Markdown tables, each beside the bound of
// the device: tensor cores for prefill, memory for the rest. Exits with 77 when there is no GPU.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/block_attention_cuda.h"
#include "kernels/gguf_cuda.h"
#include "kernels/half.h"
#include "kernels/kv_dequant_cuda.h"

namespace sparkv::kernels {
namespace {

constexpr int kRepeats = 7;

void Must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
class Device {
 public:
  explicit Device(const std::vector<T>& values) : Device(values.size()) {
    Must(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
         "cudaMemcpy");
  }
  explicit Device(size_t count) {
    Must(cudaMalloc(&data_, std::max<size_t>(1, count) * sizeof(T)), "cudaMalloc");
    Must(cudaMemset(data_, 0, count * sizeof(T)), "cudaMemset");
  }
  ~Device() { cudaFree(data_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  T* get() const { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
};

// The median of some runs, in seconds, by the device's clock.
double Seconds(const std::function<absl::Status()>& run) {
  cudaEvent_t start, stop;
  Must(cudaEventCreate(&start), "cudaEventCreate");
  Must(cudaEventCreate(&stop), "cudaEventCreate");
  std::vector<double> seconds;
  for (int i = 0; i <= kRepeats; ++i) {
    Must(cudaEventRecord(start, nullptr), "cudaEventRecord");
    Must(run());
    Must(cudaEventRecord(stop, nullptr), "cudaEventRecord");
    Must(cudaEventSynchronize(stop), "waiting for the device");
    float ms = 0;
    Must(cudaEventElapsedTime(&ms, start, stop), "cudaEventElapsedTime");
    if (i > 0) seconds.push_back(ms / 1e3);  // the first loads the kernel
  }
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

struct Bounds {
  double tensor_flops, memory_bytes_per_s;
};

Bounds BoundsHere() {
  cudaDeviceProp device;
  int khz = 0;
  Must(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  Must(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0), "cudaDeviceGetAttribute");
  // f16 multiply-adds with f32 sums of a multiprocessor in a cycle, dense, from the vendor's
  // tables.
  const int arch = device.major * 10 + device.minor;
  const double per_cycle = arch >= 90 ? 2048 : arch == 89 ? 512 : arch == 86 ? 256 : 1024;
  constexpr size_t kBytes = size_t{1} << 30;
  const Device<uint8_t> from(kBytes), to(kBytes);
  const double copy = Seconds([&] {
    Must(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, nullptr), "copy");
    return absl::OkStatus();
  });
  const Bounds bounds{2 * per_cycle * device.multiProcessorCount * khz * 1e3, 2 * kBytes / copy};
  std::printf(
      "%s, sm_%d, %d multiprocessors at %.2f GHz: %.0f TFLOP/s of f16 tensor cores, %.0f GB/s "
      "when memory is copied\n",
      device.name, arch, device.multiProcessorCount, khz / 1e6, bounds.tensor_flops / 1e12,
      bounds.memory_bytes_per_s / 1e9);
  return bounds;
}

// Queries, keys and values of one layer, standard normal.
class Layer {
 public:
  Layer(size_t dim, size_t heads, size_t kv_heads, size_t rows, size_t begin)
      : pages_((begin + rows + kKeyBlock - 1) / kKeyBlock),
        page_(kv_heads * kKeyBlock * dim),
        q_(Floats(rows * heads * dim)),
        out_(rows * heads * dim),
        log_sum_(rows * heads),
        kv_(Halves(2 * pages_ * page_)),
        k_(Pages(0)),
        v_(Pages(pages_)) {
    args_.kv = {.k = k_.get(),
                .v = v_.get(),
                .pages = pages_,
                .tokens = begin + rows,
                .kv_heads = kv_heads,
                .dim = dim,
                .head_stride = kKeyBlock * dim};
    args_.q = q_.get();
    args_.q_head_stride = args_.out_head_stride = dim;
    args_.q_row_stride = args_.out_row_stride = heads * dim;
    args_.heads = heads;
    args_.rows = rows;
    args_.begin = begin;
    args_.scale = 1 / std::sqrt(static_cast<float>(dim));
    args_.out = out_.get();
    args_.log_sum = log_sum_.get();
  }

  BlockAttentionArgs& args() { return args_; }

  // Each list keeps the first block, the last two and a share of the rest.
  void MakeLists(double share) {
    std::mt19937 rng(3);
    std::vector<uint32_t> begin{0}, blocks;
    for (size_t h = 0; h < args_.heads; ++h) {
      for (size_t i = 0; i < args_.query_blocks(); ++i) {
        const size_t last = args_.begin + std::min(args_.rows, (i + 1) * kQueryBlock) - 1;
        for (size_t b = 0; b <= last / kKeyBlock; ++b) {
          if (b == 0 || b + 2 > last / kKeyBlock || rng() % 1000 < share * 1000)
            blocks.push_back(static_cast<uint32_t>(b));
        }
        begin.push_back(static_cast<uint32_t>(blocks.size()));
      }
    }
    begin_ = std::make_unique<Device<uint32_t>>(begin);
    blocks_ = std::make_unique<Device<uint32_t>>(blocks);
    args_.lists = {begin_->get(), blocks_->get()};
    visited_ = blocks.size();
  }
  size_t visited() const { return visited_; }

 private:
  static std::vector<float> Floats(size_t n) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(n);
    for (float& x : values) x = normal(rng);
    return values;
  }
  static std::vector<uint16_t> Halves(size_t n) {
    // A period of one prime number of values: those of a million take long enough.
    const std::vector<float> few = Floats(std::min<size_t>(n, 1000003));
    std::vector<uint16_t> values(few.size());
    FloatToHalf(few.data(), values.data(), few.size());
    values.reserve(n);
    for (size_t i = 0; values.size() < n; ++i) values.push_back(values[i]);
    return values;
  }
  std::vector<const uint16_t*> Pages(size_t first) const {
    std::vector<const uint16_t*> pages;
    for (size_t p = 0; p < pages_; ++p) pages.push_back(kv_.get() + (first + p) * page_);
    return pages;
  }

  const size_t pages_, page_;
  Device<float> q_, out_, log_sum_;
  Device<uint16_t> kv_;
  Device<const uint16_t*> k_, v_;
  std::unique_ptr<Device<uint32_t>> begin_, blocks_;
  size_t visited_ = 0;
  BlockAttentionArgs args_;
};

struct Model {
  const char* name;
  size_t dim, heads, kv_heads;
};
constexpr Model kModels[] = {{"9/3 heads, d 64", 64, 9, 3},
                             {"32/8 heads, d 128", 128, 32, 8},
                             {"16/8 heads, d 256", 256, 16, 8}};

void Prefill(const Bounds& bounds) {
  std::printf(
      "\n| prefill | tokens | ms | TFLOP/s | of bound | half of the blocks, ms | per block |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const Model& m : kModels) {
    for (const size_t tokens : {1024, 4096, 8192, 16384}) {
      Layer layer(m.dim, m.heads, m.kv_heads, tokens, 0);
      const double dense =
          Seconds([&] { return BlockSparseAttentionCuda(layer.args(), nullptr, nullptr); });
      // The blocks that are visited, the diagonal ones whole as they are computed.
      double blocks = 0;
      for (size_t i = 0; i < layer.args().query_blocks(); ++i) {
        blocks += static_cast<double>(m.heads * ((i + 1) * kQueryBlock / kKeyBlock));
      }
      const double flops = 4.0 * m.dim * kQueryBlock * kKeyBlock * blocks / dense;
      layer.MakeLists(0.5);
      const double sparse =
          Seconds([&] { return BlockSparseAttentionCuda(layer.args(), nullptr, nullptr); });
      std::printf("| %s | %zu | %.3f | %.1f | %.0f %% | %.3f | %.2f of dense |\n", m.name, tokens,
                  dense * 1e3, flops / 1e12, 100 * flops / bounds.tensor_flops, sparse * 1e3,
                  sparse / static_cast<double>(layer.visited()) / (dense / blocks));
    }
  }
}

void Decode(const Bounds& bounds) {
  std::printf(
      "\n| decode | rows | context | us | GB/s of K and V | of bound |\n"
      "|---|---|---|---|---|---|\n");
  for (const Model& m : kModels) {
    for (const size_t rows : {1, 8, 64}) {
      for (const size_t context : {1024, 8192, 65536}) {
        Layer layer(m.dim, m.heads, m.kv_heads, rows, context - rows);
        const size_t floats = PagedDecodeScratchFloats(layer.args());
        const Device<float> scratch(floats);
        const double seconds = Seconds([&] {
          return PagedDecodeAttentionCuda(layer.args(), scratch.get(), floats, nullptr, nullptr);
        });
        const double rate = 4.0 * m.kv_heads * m.dim * context / seconds;
        std::printf("| %s | %zu | %zu | %.1f | %.0f | %.0f %% |\n", m.name, rows, context,
                    seconds * 1e6, rate / 1e9, 100 * rate / bounds.memory_bytes_per_s);
      }
    }
  }
}

void Linear(const Bounds& bounds) {
  constexpr size_t kRows = 14336, kWidth = 4096;
  std::printf(
      "\n| weights, %zu x %zu | one vector, us | GB/s | of bound | eight, us | to f16, us |\n"
      "|---|---|---|---|---|---|\n",
      kRows, kWidth);
  const Device<float> x(8 * kWidth), y(8 * kRows);
  const Device<uint16_t> half(kRows * kWidth);
  for (const GgmlType type :
       {GgmlType::kQ8_0, GgmlType::kQ4_0, GgmlType::kQ4_1, GgmlType::kQ4_K, GgmlType::kQ6_K}) {
    const GgmlTypeInfo& info = *FindGgmlType(static_cast<uint32_t>(type));
    const size_t bytes = RowBytes(info, kRows * kWidth);
    const Device<uint8_t> w(bytes);
    GgufLinearCudaArgs a;
    a.w = w.get();
    a.rows = kRows;
    a.k = kWidth;
    a.x = x.get();
    a.x_stride = kWidth;
    a.y = y.get();
    a.y_stride = kRows;
    const double one = Seconds([&] { return GgufLinearCuda(type, a, nullptr); });
    a.batch = 8;
    const double eight = Seconds([&] { return GgufLinearCuda(type, a, nullptr); });
    const double expand =
        Seconds([&] { return GgufToHalfCuda(type, w.get(), kRows * kWidth, half.get(), nullptr); });
    const double rate = static_cast<double>(bytes) / one;
    std::printf("| %s | %.1f | %.0f | %.0f %% | %.1f | %.1f |\n", info.name, one * 1e6, rate / 1e9,
                100 * rate / bounds.memory_bytes_per_s, eight * 1e6, expand * 1e6);
  }
}

void Dequantize(const Bounds& bounds) {
  constexpr size_t kJobs = 512, kTokens = 1024, kDim = 128;
  constexpr size_t kPages = kTokens / kKeyBlock, kPage = kKeyBlock * kDim;
  const Device<uint8_t> codes(kJobs * kTokens * kDim), params(4 * kTokens), ok(kJobs);
  const Device<uint16_t> out(kJobs * kPages * kPage);
  std::vector<uint16_t*> pages;
  for (size_t p = 0; p < kJobs * kPages; ++p) pages.push_back(out.get() + p * kPage);
  const Device<uint16_t*> table(pages);
  std::vector<KvDequantCudaJob> jobs(kJobs);
  for (size_t j = 0; j < kJobs; ++j) {
    jobs[j].codes = codes.get() + j * kTokens * kDim;
    jobs[j].params = params.get();
    jobs[j].pages = table.get() + j * kPages;
    jobs[j].per_channel = j % 2 == 0;
  }
  const Device<KvDequantCudaJob> device_jobs(jobs);
  const KvDequantCudaArgs a{
      .jobs = device_jobs.get(), .count = kJobs, .tokens = kTokens, .dim = kDim, .ok = ok.get()};
  const double seconds = Seconds([&] { return KvDequantizeCuda(a, nullptr); });
  const double rate = 3.0 * kJobs * kTokens * kDim / seconds;  // a byte in, two out
  std::printf(
      "\n| dequantizing, generic codec | GB/s of f16 | of bound |\n|---|---|---|\n"
      "| %zu heads of %zu tokens, d %zu | %.0f | %.0f %% |\n",
      kJobs, kTokens, kDim, rate / 1.5e9, 100 * rate / bounds.memory_bytes_per_s);
}

}  // namespace
}  // namespace sparkv::kernels

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no usable GPU here\n");
    return 77;
  }
  const sparkv::kernels::Bounds bounds = sparkv::kernels::BoundsHere();
  sparkv::kernels::Prefill(bounds);
  sparkv::kernels::Decode(bounds);
  sparkv::kernels::Linear(bounds);
  sparkv::kernels::Dequantize(bounds);
  return 0;
}
