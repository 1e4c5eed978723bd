// The CUDA twin of RansDecode: a warp for each stream. A symbol is found by comparing its slot with
// 16 starts at once, which every lane holds in registers: those of an alphabet of up to 16 symbols,
// or every 16th of a larger one, whose table is in shared memory and gives the rest by four
// halvings.
#include "kernels/rans_cuda_streams.h"
#include "kernels/rans_warp.h"

namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE {
namespace {

constexpr uint32_t kFewSymbols = 16;
constexpr uint32_t kMostStarts = 257;  // the largest alphabet and the end

struct RansSymbol {
  uint32_t symbol, start, frequency;
};

// kFew: alphabets of up to 16 symbols.
template <bool kFew>
class WarpTable {
 public:
  // all: shared memory of this warp, [kMostStarts]; unused when kFew
  __device__ WarpTable(uint32_t alphabet, uint32_t lane, uint16_t* all)
      : alphabet_(alphabet), lane_(lane), all_(all) {}

  // starts: [alphabet]
  __device__ void Load(const uint16_t* starts) {
    if constexpr (kFew) {
      mine_ = Start(starts, lane_);
      SPARKV_UNROLL
      for (uint32_t k = 0; k < kFewSymbols; ++k) some_[k] = Start(starts, k);
    } else {
      __syncwarp();  // the table before may still be read
      for (uint32_t s = lane_; s < kMostStarts; s += kWarpSize) {
        all_[s] = static_cast<uint16_t>(Start(starts, s));
      }
      __syncwarp();
      SPARKV_UNROLL
      for (uint32_t k = 0; k < kFewSymbols; ++k) some_[k] = all_[kFewSymbols * k];
    }
  }

  // The whole warp calls it.
  __device__ RansSymbol Find(uint32_t slot) const {
    uint32_t s = 0;  // the last one that starts at or before the slot
    SPARKV_UNROLL
    for (uint32_t k = 1; k < kFewSymbols; ++k) s += some_[k] <= slot ? 1 : 0;
    uint32_t start, end;
    if constexpr (kFew) {
      start = __shfl_sync(kWholeWarp, mine_, static_cast<int>(s));
      end = __shfl_sync(kWholeWarp, mine_, static_cast<int>(s + 1));
    } else {
      s *= kFewSymbols;
      SPARKV_UNROLL
      for (uint32_t step = kFewSymbols / 2; step > 0; step /= 2) {
        s += all_[s + step] <= slot ? step : 0;
      }
      start = all_[s];
      end = all_[s + 1];
    }
    return {s, start, end - start};
  }

 private:
  __device__ uint32_t Start(const uint16_t* starts, uint32_t s) const {
    return s < alphabet_ ? __ldg(starts + s) : kRansFrequencySum;
  }

  const uint32_t alphabet_, lane_;
  uint16_t* const all_;
  uint32_t some_[kFewSymbols] = {};  // the starts of all symbols, or of every 16th
  uint32_t mine_ = 0;                // kFew: the start of symbol `lane`
};

// One stream by one warp; the verdict is the same in all lanes.
template <bool kFew>
__device__ bool Decode(const RansCudaStream& in, uint32_t lane, uint16_t* shared) {
  uint32_t x;
  if (!LoadRansState(in.states, in.state_bytes, in.length, lane, &x)) return false;
  RansWords words(in.words, in.word_bytes, lane);
  WarpTable<kFew> table(in.alphabet, lane, shared);
  uint32_t loaded = 256;  // none
  uint8_t* out = in.out;
  for (uint32_t run = 0; run < in.runs; ++run) {
    const uint32_t id = __ldg(in.table_of_run + run);
    if (id != loaded) table.Load(in.starts + size_t{id} * in.alphabet);
    loaded = id;
    for (uint32_t done = 0; done < in.length; done += kRansLanes) {
      const uint32_t slot = x & (kRansFrequencySum - 1);
      const RansSymbol found = table.Find(slot);
      if (in.length - done > lane) {
        x = found.frequency * (x >> kRansFrequencyBits) + slot - found.start;
        uint8_t* const to = out + done + lane;
        const uint32_t above = in.shift == 0 ? 0 : uint32_t{*to} << in.shift;
        *to = static_cast<uint8_t>(above | found.symbol);
      }
      if (!words.Refill(&x)) return false;
    }
    out += in.length;
  }
  return words.AtEnd(in.word_bytes, x);
}

__global__ void __launch_bounds__(kWarpSize* kRansWarps)
    RansDecodeKernel(const RansCudaStream* streams, uint32_t count, uint8_t* ok) {
  SPARKV_SHARED(uint16_t, starts, kRansWarps * kMostStarts);
  const uint32_t lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const uint32_t number = blockIdx.x * (blockDim.x / kWarpSize) + warp;
  if (number >= count) return;
  const RansCudaStream in = streams[number];
  uint16_t* const shared = starts + warp * kMostStarts;
  const bool decoded =
      in.alphabet <= kFewSymbols ? Decode<true>(in, lane, shared) : Decode<false>(in, lane, shared);
  if (lane == 0) ok[number] = decoded ? 1 : 0;
}

}  // namespace

const char* LaunchRansDecode(const RansCudaStream* streams, uint32_t count, uint8_t* ok,
                             CudaStream stream) {
  const uint32_t warps = count < kRansWarps ? count : kRansWarps;
  return Launch(RansDecodeKernel, dim3((count + warps - 1) / warps), dim3(warps * kWarpSize), 0,
                stream, streams, count, ok);
}

}  // namespace sparkv::kernels::SPARKV_CUDA_NAMESPACE
