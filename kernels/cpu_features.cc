#include "kernels/cpu_features.h"

#include <cstdlib>
#include <cstring>

namespace sparkv::kernels {

bool HasAvx2() {
#if defined(__x86_64__)
  static const bool has = [] {
    const char* wanted = std::getenv("SPARKV_SIMD");
    if (wanted != nullptr && std::strcmp(wanted, "scalar") == 0) return false;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  }();
  return has;
#else
  return false;
#endif
}

std::string CpuFeatures() {
  std::string out;
#if defined(__x86_64__)
  const auto add = [&out](bool has, const char* name) {
    if (!has) return;
    if (!out.empty()) out += ' ';
    out += name;
  };
  add(__builtin_cpu_supports("avx2"), "avx2");
  add(__builtin_cpu_supports("fma"), "fma");
  add(__builtin_cpu_supports("f16c"), "f16c");
  add(__builtin_cpu_supports("avx512f"), "avx512f");
  if (!HasAvx2()) out += out.empty() ? "scalar" : " (scalar twins forced)";
#else
  out = "scalar";
#endif
  return out;
}

}  // namespace sparkv::kernels
