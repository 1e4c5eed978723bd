#include "kernels/rans_cuda.h"

#include "absl/strings/str_cat.h"

namespace sparkv::kernels {
namespace {

template <typename Stream>
using Launcher = const char* (*)(const Stream*, uint32_t, uint8_t*, CudaStream);

// launch: nullptr in a build without CUDA.
template <typename Stream>
absl::Status Start(const char* name, Launcher<Stream> launch, const Stream* streams, uint32_t count,
                   uint8_t* ok, CudaStream stream) {
  if (count > kMaxCudaStreams) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", count, " streams; at most ", kMaxCudaStreams));
  }
  if (count > 0 && (streams == nullptr || ok == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", streams == nullptr ? "streams" : "ok", " is null"));
  }
  if (launch == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(name, ": this build has no CUDA kernels (SPARKV_CUDA is off)"));
  }
  if (count == 0) return absl::OkStatus();
  const char* const error = launch(streams, count, ok, stream);
  if (error == nullptr) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(name, ": CUDA says: ", error));
}

#ifdef SPARKV_HAS_CUDA
constexpr Launcher<RansCudaStream> kDecode = cuda::LaunchRansDecode;
constexpr Launcher<ThirdsCudaStream> kThirds = cuda::LaunchRansThirds;
#else
constexpr Launcher<RansCudaStream> kDecode = nullptr;
constexpr Launcher<ThirdsCudaStream> kThirds = nullptr;
#endif

}  // namespace

absl::Status RansDecodeCuda(const RansCudaStream* streams, uint32_t count, uint8_t* ok,
                            CudaStream stream) {
  return Start("RansDecodeCuda", kDecode, streams, count, ok, stream);
}

absl::Status RansThirdsCuda(const ThirdsCudaStream* streams, uint32_t count, uint8_t* ok,
                            CudaStream stream) {
  return Start("RansThirdsCuda", kThirds, streams, count, ok, stream);
}

}  // namespace sparkv::kernels
