#include "kernels/cpu_features.h"

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sparkv::kernels {

namespace {
bool ScalarWanted() {
  const char* wanted = std::getenv("SPARKV_SIMD");
  return wanted != nullptr && std::strcmp(wanted, "scalar") == 0;
}
#if defined(__x86_64__)
// By CPUID: clang 14's __builtin_cpu_supports does not know the name. Usable when AVX2 is (same
// registers).
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif
}  // namespace

bool HasAvx2() {
#if defined(__x86_64__)
  static const bool has = [] {
    if (ScalarWanted()) return false;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  }();
  return has;
#else
  return false;
#endif
}

bool HasNeon() {
#if defined(__aarch64__)
  static const bool has = !ScalarWanted();
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
  add(HasF16c(), "f16c");
  add(__builtin_cpu_supports("avx512f"), "avx512f");
  if (!HasAvx2()) out += out.empty() ? "scalar" : " (scalar twins forced)";
#elif defined(__aarch64__)
  out = HasNeon() ? "neon" : "neon (scalar twins forced)";
#else
  out = "scalar";
#endif
  return out;
}

}  // namespace sparkv::kernels
