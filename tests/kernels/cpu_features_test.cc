#include "kernels/cpu_features.h"

#include <cstdlib>
#include <string>

#include "tests/catch.h"

using sparkv::kernels::CpuFeatures;
using sparkv::kernels::HasAvx2;
using sparkv::kernels::HasNeon;

TEST_CASE("the environment forces the scalar twins and the report says so") {
  const char* wanted = std::getenv("SPARKV_SIMD");
  const bool scalar = wanted != nullptr && std::string(wanted) == "scalar";
  if (scalar) {
    CHECK_FALSE(HasAvx2());
    CHECK_FALSE(HasNeon());
    CHECK(CpuFeatures().find("scalar") != std::string::npos);
  } else if (HasAvx2()) {
    CHECK(CpuFeatures().find("avx2 fma f16c") == 0);
    CHECK(CpuFeatures().find("scalar") == std::string::npos);
  } else if (HasNeon()) {
    CHECK(CpuFeatures() == "neon");
  } else {
    CHECK(CpuFeatures().find("scalar") != std::string::npos);
  }
#if defined(__aarch64__)
  CHECK(HasNeon() == !scalar);
#endif
}
