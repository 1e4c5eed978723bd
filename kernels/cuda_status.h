// How the calls around CUDA kernels say that a launch failed, or that there are none.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

// SPARKV_CUDA_LAUNCH(name, call): the status of cuda::call, which gives nullptr or an error; call
// is not compiled in a build without CUDA.
#ifdef SPARKV_HAS_CUDA
#define SPARKV_CUDA_LAUNCH(name, call) \
  ::sparkv::kernels::CudaLaunchStatus(name, ::sparkv::kernels::cuda::call)
#else
#define SPARKV_CUDA_LAUNCH(name, call) ::sparkv::kernels::NoCudaKernels(name)
#endif

namespace sparkv::kernels {

inline absl::Status CudaLaunchStatus(const char* name, const char* error) {
  if (error == nullptr) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(name, ": CUDA says: ", error));
}

inline absl::Status NoCudaKernels(const char* name) {
  return absl::UnimplementedError(
      absl::StrCat(name, ": this build has no CUDA kernels (SPARKV_CUDA is off)"));
}

}  // namespace sparkv::kernels
