// rANS symbols per second on the GPU against the CPU twin on one core, as a Markdown table. Exits
// with 77 when there is no GPU.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu_features.h"
#include "kernels/rans_cuda.h"
#include "kernels/rans_decode.h"
#include "kernels/rans_thirds.h"
#include "tests/kernels/rans_stream.h"
#include "tests/kernels/thirds_stream.h"

namespace sparkv::kernels {
namespace {

constexpr uint32_t kRuns = 64, kLength = 1024;  // of a stream: a block's channels and its tokens
constexpr uint64_t kSymbols = uint64_t{kRuns} * kLength;
constexpr int kRepeats = 7;

void Must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// `copies` of some bytes one after another in the device's memory, each at a multiple of 256.
class DeviceCopies {
 public:
  DeviceCopies(const void* bytes, size_t size, uint32_t copies)
      : stride_((size + 255) / 256 * 256 + 256), size_(size), copies_(copies) {
    Must(cudaMalloc(&memory_, stride_ * copies), "cudaMalloc");
    Fill(bytes);
  }
  ~DeviceCopies() { cudaFree(memory_); }
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  void Fill(const void* bytes) {
    for (uint32_t i = 0; i < copies_ && size_ > 0; ++i) {
      Must(i == 0 ? cudaMemcpy(At<void>(0), bytes, size_, cudaMemcpyHostToDevice)
                  : cudaMemcpyAsync(At<void>(i), At<void>(0), size_, cudaMemcpyDeviceToDevice),
           "cudaMemcpy");
    }
    Must(cudaDeviceSynchronize(), "cudaMemcpy");
  }
  template <typename T>
  T* At(uint32_t i) const {
    return reinterpret_cast<T*>(static_cast<uint8_t*>(memory_) + i * stride_);
  }

 private:
  void* memory_ = nullptr;
  const size_t stride_, size_;
  const uint32_t copies_;
};

double Median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// before: what must be done before each run, outside of the time.
template <typename Before, typename Run>
double CpuSeconds(Before before, Run run) {
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    before();
    const auto start = std::chrono::steady_clock::now();
    if (!run()) {
      std::fprintf(stderr, "the CPU twin refuses its stream\n");
      std::exit(1);
    }
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return Median(seconds);
}

template <typename Before, typename Launch>
double GpuSeconds(Before before, Launch launch) {
  cudaEvent_t start, end;
  Must(cudaEventCreate(&start), "cudaEventCreate");
  Must(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    before();
    Must(cudaEventRecord(start), "cudaEventRecord");
    const absl::Status status = launch();
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      std::exit(1);
    }
    Must(cudaEventRecord(end), "cudaEventRecord");
    Must(cudaEventSynchronize(end), "the kernel");
    float ms = 0;
    Must(cudaEventElapsedTime(&ms, start, end), "cudaEventElapsedTime");
    seconds.push_back(ms / 1000);
  }
  cudaEventDestroy(start);
  cudaEventDestroy(end);
  return Median(seconds);
}

// All streams decoded, the first and the last to what they should be.
void Check(const DeviceCopies& ok, const DeviceCopies& out, const void* want, size_t bytes,
           uint32_t streams) {
  std::vector<uint8_t> host(std::max<size_t>(bytes, streams));
  Must(cudaMemcpy(host.data(), ok.At<void>(0), streams, cudaMemcpyDeviceToHost), "cudaMemcpy");
  bool right = std::all_of(host.begin(), host.begin() + streams, [](uint8_t b) { return b == 1; });
  for (const uint32_t i : {0u, streams - 1}) {
    Must(cudaMemcpy(host.data(), out.At<void>(i), bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    right = right && std::memcmp(host.data(), want, bytes) == 0;
  }
  if (right) return;
  std::fprintf(stderr, "the GPU decodes something else\n");
  std::exit(1);
}

void PrintRow(const std::string& what, uint32_t streams, double bits, double gpu, double cpu) {
  const double gpu_rate = static_cast<double>(kSymbols) * streams / gpu;
  const double cpu_rate = static_cast<double>(kSymbols) / cpu;
  std::printf("| %s | %.2f | %u | %.1f | %.1f | %.2fx |\n", what.c_str(), bits, streams,
              gpu_rate / 1e6, cpu_rate / 1e6, gpu_rate / cpu_rate);
  std::fflush(stdout);
}

// A geometric distribution, as those of a codec's symbols.
std::vector<uint32_t> Skewed(uint32_t alphabet, double ratio) {
  std::vector<uint32_t> f(alphabet, 1);
  double weight = 1 - ratio;
  for (uint32_t s = 0; s < alphabet; ++s, weight *= ratio) {
    f[s] += static_cast<uint32_t>((kRansFrequencySum - alphabet) * weight);
  }
  f[0] += kRansFrequencySum - std::accumulate(f.begin(), f.end(), 0u);
  return f;
}

void BenchDecode(uint32_t alphabet, double ratio, const std::vector<uint32_t>& counts) {
  std::mt19937 rng(1);
  RansStream s;
  s.length = kLength;
  constexpr uint32_t kTables = 8;
  std::vector<uint16_t> starts;
  for (uint32_t t = 0; t < kTables; ++t) {
    s.frequencies.push_back(Skewed(alphabet, ratio * (1 - 0.02 * t)));
    uint32_t start = 0;
    for (const uint32_t f : s.frequencies.back()) {
      starts.push_back(static_cast<uint16_t>(start));
      start += f;
    }
  }
  for (uint32_t r = 0; r < kRuns; ++r) {
    s.table_of_run.push_back(static_cast<uint8_t>(r % kTables));
    const auto& f = s.frequencies[r % kTables];
    for (uint32_t i = 0; i < kLength; ++i) {
      uint32_t slot = rng() % kRansFrequencySum, symbol = 0;
      while (slot >= f[symbol]) slot -= f[symbol++];
      s.symbols.push_back(static_cast<uint8_t>(symbol));
    }
  }
  EncodeRans(&s);
  const size_t state_bytes = 4 * s.states.size(), word_bytes = 2 * s.words.size();

  std::vector<RansTable> tables(kTables);
  for (uint32_t t = 0; t < kTables; ++t) tables[t].Build(s.frequencies[t]);
  std::vector<uint8_t> out(kSymbols);
  RansInput in;
  in.tables = tables;
  in.table_of_run = s.table_of_run;
  in.length = kLength;
  in.states = {reinterpret_cast<const uint8_t*>(s.states.data()), state_bytes};
  in.words = {reinterpret_cast<const uint8_t*>(s.words.data()), word_bytes};
  const double cpu = CpuSeconds([] {}, [&] { return RansDecode(in, out.data()); });

  for (const uint32_t count : counts) {
    const DeviceCopies all_starts(starts.data(), 2 * starts.size(), count);
    const DeviceCopies ids(s.table_of_run.data(), s.table_of_run.size(), count);
    const DeviceCopies states(s.states.data(), state_bytes, count);
    const DeviceCopies words(s.words.data(), word_bytes, count);
    const std::vector<uint8_t> zeros(std::max<uint64_t>(kSymbols, count));
    const DeviceCopies decoded(zeros.data(), kSymbols, count), verdicts(zeros.data(), count, 1);
    std::vector<RansCudaStream> streams(count);
    for (uint32_t i = 0; i < count; ++i) {
      RansCudaStream& d = streams[i];
      d.starts = all_starts.At<uint16_t>(i);
      d.table_of_run = ids.At<uint8_t>(i);
      d.states = states.At<uint8_t>(i);
      d.words = words.At<uint8_t>(i);
      d.out = decoded.At<uint8_t>(i);
      d.alphabet = alphabet;
      d.runs = kRuns;
      d.length = kLength;
      d.state_bytes = static_cast<uint32_t>(state_bytes);
      d.word_bytes = static_cast<uint32_t>(word_bytes);
    }
    const DeviceCopies device(streams.data(), sizeof(RansCudaStream) * count, 1);
    const double gpu = GpuSeconds([] {},
                                  [&] {
                                    return RansDecodeCuda(device.At<RansCudaStream>(0), count,
                                                          verdicts.At<uint8_t>(0), nullptr);
                                  });
    Check(verdicts, decoded, s.symbols.data(), kSymbols, count);
    PrintRow("rANS, " + std::to_string(alphabet) + " symbols", count,
             16.0 * static_cast<double>(s.words.size()) / kSymbols, gpu, cpu);
  }
}

void BenchThirds(const std::vector<uint32_t>& counts) {
  std::mt19937 rng(2);
  ThirdsStream s = RandomThirdsStream(rng, kRuns, kLength, 20);
  const size_t state_bytes = 4 * s.states.size(), word_bytes = 2 * s.words.size();
  std::vector<int16_t> values;
  const ThirdsInput in{s.models,
                       kLength,
                       {reinterpret_cast<const uint8_t*>(s.states.data()), state_bytes},
                       {reinterpret_cast<const uint8_t*>(s.words.data()), word_bytes}};
  const double cpu =
      CpuSeconds([&] { values = s.coarse; }, [&] { return RansThirds(in, values.data()); });
  for (const uint32_t count : counts) {
    const DeviceCopies models(s.models.data(), sizeof(ThirdsModel) * kRuns, count);
    const DeviceCopies states(s.states.data(), state_bytes, count);
    const DeviceCopies words(s.words.data(), word_bytes, count);
    DeviceCopies refined(s.coarse.data(), 2 * kSymbols, count);
    const std::vector<uint8_t> zeros(count);
    const DeviceCopies verdicts(zeros.data(), count, 1);
    std::vector<ThirdsCudaStream> streams(count);
    for (uint32_t i = 0; i < count; ++i) {
      ThirdsCudaStream& d = streams[i];
      d.models = models.At<ThirdsModel>(i);
      d.states = states.At<uint8_t>(i);
      d.words = words.At<uint8_t>(i);
      d.values = refined.At<int16_t>(i);
      d.runs = kRuns;
      d.length = kLength;
      d.state_bytes = static_cast<uint32_t>(state_bytes);
      d.word_bytes = static_cast<uint32_t>(word_bytes);
    }
    const DeviceCopies device(streams.data(), sizeof(ThirdsCudaStream) * count, 1);
    const double gpu = GpuSeconds([&] { refined.Fill(s.coarse.data()); },
                                  [&] {
                                    return RansThirdsCuda(device.At<ThirdsCudaStream>(0), count,
                                                          verdicts.At<uint8_t>(0), nullptr);
                                  });
    Check(verdicts, refined, s.fine.data(), 2 * kSymbols, count);
    PrintRow("THIRDS", count, 16.0 * static_cast<double>(s.words.size()) / kSymbols, gpu, cpu);
  }
}

}  // namespace
}  // namespace sparkv::kernels

int main() {
  using namespace sparkv::kernels;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no usable GPU here\n");
    return 77;
  }
  cudaDeviceProp properties;
  Must(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("Streams of %u runs of %u symbols; GPU: %s, CPU: one core, %s; median of %d.\n\n",
              kRuns, kLength, properties.name, CpuFeatures().c_str(), kRepeats);
  std::printf(
      "| what | bits per symbol | streams | GPU, M symbols/s | CPU twin, M symbols/s | GPU / CPU "
      "|\n");
  std::printf("|---|---|---|---|---|---|\n");
  const std::vector<uint32_t> counts = {1, 8, 64, 512, 4096};
  BenchDecode(8, 0.4, counts);
  BenchDecode(16, 0.6, counts);
  BenchDecode(64, 0.7, counts);
  BenchDecode(256, 0.97, counts);
  BenchThirds(counts);
  return 0;
}
