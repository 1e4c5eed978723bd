#include "common/llm/runtime_env.h"

#include <unistd.h>

#include <cstdlib>

namespace sparkv {
namespace {

constexpr char kGuard[] = "SPARKV_OPENMP_ENVIRONMENT";

}  // namespace

void EnsurePassiveOpenMp(int argc, char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr ||
      std::getenv(kGuard) != nullptr || argc < 1) {
    return;
  }
  ::setenv(kGuard, "1", 1);
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::execv("/proc/self/exe", argv);
  // Still here: the program runs all the same, only with busier waits.
}

}  // namespace sparkv
