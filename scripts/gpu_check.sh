#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds the CUDA kernels, runs their tests on the GPU (and in the emulator), and prints tables
# of speeds: attention, decode and weights against what the GPU can do, rANS against the CPU. At most 8 minutes.
#   scripts/gpu_check.sh [--build-only | --run-only] [--build DIR]
# --build-only  only build, which needs no GPU
# --run-only    only run what was built, perhaps on another machine: one with the shared libraries that `ldd` names
# --build DIR   build there instead of build/gpu-check
# SPARKV_NVCC=<file>  use this nvcc; else that of PATH, of /usr/local/cuda, or the one that scripts/cuda_check.sh fetches
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

usage="usage: scripts/gpu_check.sh [--build-only | --run-only] [--build DIR]"
want_build=1 want_run=1 build=build/gpu-check
while (($#)); do
  case $1 in
    --build-only) want_run=0 ;;
    --run-only) want_build=0 ;;
    --build) build=${2:?$usage}; shift ;;
    *) die "unknown option '$1'; $usage" ;;
  esac
  shift
done

limit_s=480
within() {  # within COMMAND...: what is left of the 8 minutes
  local left=$((limit_s - SECONDS))
  ((left > 0)) || die "8 minutes are over"
  timeout "$left" "$@"
}

if ((want_build)); then
  scripts/cuda_check.sh --fetch-only
  nvcc=$(find_nvcc) || die "there is no nvcc"
  within cmake --preset cuda-release -B "$build" -DSPARKV_CORE_ONLY=ON -DSPARKV_NVCC="$nvcc" >&2 ||
    die "configuring failed; the message above names what is missing (g++ cmake ninja-build libabsl-dev libssl-dev catch2)"
  within cmake --build "$build" --parallel "${SPARKV_JOBS:-$(nproc)}" \
    --target cuda_probe kernels_test cuda_kernels_test cuda_emulator_test cuda_bench rans_cuda_bench >&2 ||
    die "the build failed or took too long; the compiler's message is above"
fi
((want_run)) || exit 0

tests=$build/tests
[[ -x $tests/kernels/cuda_probe ]] || die "$build holds no build; run scripts/gpu_check.sh --build-only"
code=0
gpu=$("$tests/kernels/cuda_probe") || code=$?
((code == 0)) || die "$gpu"
say "$gpu"

# On the GPU; a test that skips itself is a failure here.
for program in kernels_test cuda_kernels_test; do
  within "$tests/kernels/$program" "*on a GPU*"
done | tee "$build/gpu_test.txt" || die "the kernels are wrong on the GPU"
! grep -q SPARKV_TEST_SKIPPED "$build/gpu_test.txt" || die "the tests on the GPU were skipped"
# What the emulator says of the same kernels, and of itself.
within "$tests/testing/cuda_emulator/cuda_emulator_test" || die "the emulator is wrong"
within "$tests/kernels/kernels_test" "*rANS*,*THIRDS*,*CUDA*" || die "the kernels are wrong in the emulator"
within "$tests/kernels/cuda_kernels_test" "*CUDA*" || die "the kernels are wrong in the emulator"
within "$tests/kernels/cuda_bench" || die "the benchmark failed"
within "$tests/kernels/rans_cuda_bench" || die "the benchmark failed"
say "done in $SECONDS s"
