// A CUDA stream's handle without CUDA's headers.
#pragma once

struct CUstream_st;

namespace sparkv::kernels {

// What CUDA calls cudaStream_t; nullptr is the default stream.
using CudaStream = CUstream_st*;

}  // namespace sparkv::kernels
