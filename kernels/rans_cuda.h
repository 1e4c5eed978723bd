// Interleaved rANS decoding on a CUDA device, common/codec/FORMAT.md section 3: many streams in one
// launch, a warp for each. Bit for bit what RansDecode and RansThirds write, and refused where they
// refuse.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/rans_cuda_streams.h"

namespace sparkv::kernels {

// Queues the decoding of all streams behind what `stream` holds and returns. When the work is done,
// ok[i] is 1 where stream i was decoded, and 0 where it was refused for what RansDecode refuses;
// then its output is undefined, but nothing beside it is written.
//   streams: [count], device memory, as is whatever it points to; must live until the work is done
//   ok:      [count], device memory
// Each output overlaps nothing else of the call. What a stream's own fields promise (an alphabet of
// 1..256, table numbers below the number of tables, starts that ascend) is the caller's to check.
// InvalidArgument: a null pointer with count > 0, or count > kMaxCudaStreams. Unimplemented: this
// build has no CUDA kernels. Internal: CUDA refused the launch. Errors of the device while it runs,
// a stray pointer above all, come out of CUDA when the stream is waited for.
// Threads: any, as CUDA's streams allow.
absl::Status RansDecodeCuda(const RansCudaStream* streams, uint32_t count, uint8_t* ok,
                            CudaStream stream);

// The same for RansThirds: refines `values` in place.
absl::Status RansThirdsCuda(const ThirdsCudaStream* streams, uint32_t count, uint8_t* ok,
                            CudaStream stream);

}  // namespace sparkv::kernels
