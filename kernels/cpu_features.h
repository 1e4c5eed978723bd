// What the CPU can run, found once at run time; the build itself targets the baseline architecture.
#pragma once

#include <string>

namespace sparkv::kernels {

// AVX2 + FMA + F16C. False when the environment holds SPARKV_SIMD=scalar, which forces the scalar
// twins.
bool HasAvx2();

// AArch64, where every CPU has it; false under SPARKV_SIMD=scalar.
bool HasNeon();

// "avx2 fma f16c avx512f", "neon" or "scalar": for --version and reports.
std::string CpuFeatures();

}  // namespace sparkv::kernels
