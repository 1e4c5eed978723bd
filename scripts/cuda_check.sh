#!/usr/bin/env bash
# Compiles every CUDA kernel for each architecture, warnings and spilled registers being errors, links a program with them, and
# prints what each kernel takes of a multiprocessor. Needs no GPU. Where there is no nvcc it fetches PyPI's under .deps/cuda.
# Safe to run again.
#   scripts/cuda_check.sh [--fetch-only | --no-fetch] [--build DIR]
# --fetch-only  only fetch what is missing
# --no-fetch    exit with 77 instead of fetching when something is missing
# --build DIR   build there instead of build/cuda-check
# SPARKV_NVCC=<file>  use this nvcc; else that of PATH, of /usr/local/cuda, or the fetched one
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

usage="usage: scripts/cuda_check.sh [--fetch-only | --no-fetch] [--build DIR]"
fetch=1 check=1 build=build/cuda-check
while (($#)); do
  case $1 in
    --fetch-only) check=0 ;;
    --no-fetch) fetch=0 ;;
    --build) build=${2:?$usage}; shift ;;
    *) die "unknown option '$1'; $usage" ;;
  esac
  shift
done

if ! nvcc=$(find_nvcc); then
  if ! ((fetch)); then
    say "${0##*/}: skipped: there is no nvcc; run scripts/cuda_check.sh, which fetches one"
    exit 77
  fi
  say "fetching CUDA's compiler $CUDA_VERSION (140 MB, once)"
  rm -rf "$DEPS/cuda" "$DEPS/cuda.part"
  pip_unpack "$DEPS/cuda.part" --only-binary=:all: "nvidia-cuda-nvcc==$CUDA_VERSION.*" "nvidia-nvvm==$CUDA_VERSION.*" \
    "nvidia-cuda-crt==$CUDA_VERSION.*" "nvidia-cuda-runtime==$CUDA_VERSION.*" "nvidia-cuda-cccl==$CUDA_VERSION.*" ||
    die "could not fetch nvidia-cuda-nvcc==$CUDA_VERSION.* and its companions from PyPI; check the network, or set SPARKV_NVCC"
  mv "$DEPS/cuda.part" "$DEPS/cuda"
  nvcc=$(find_nvcc) || die "the wheel nvidia-cuda-nvcc does not hold nvidia/cu13/bin/nvcc any more"
fi
((check)) || exit 0

cmake --preset cuda-release -B "$build" -DSPARKV_CORE_ONLY=ON -DSPARKV_NVCC="$nvcc" >&2 ||
  die "configuring failed; the message above names what is missing"
cmake --build "$build" --parallel "${SPARKV_JOBS:-$(nproc)}" --target sparkv_cuda_objects cuda_probe >&2 ||
  die "the build failed; the compiler's message is above"

for source in kernels/*.cu; do
  report=$build/ptxas/$(basename "$source" .cu).txt
  [[ -s $report ]] || die "$source is not built: it is missing in kernels/CMakeLists.txt"
done
# ptxas: "Compiling entry function 'NAME' for 'sm_80'", "N bytes stack frame, N bytes spill stores, ...", "Used N registers, ..."
cat "$build"/ptxas/*.txt | c++filt | awk '
  BEGIN {printf "%-26s %-6s %9s %7s %6s %6s\n", "kernel", "for", "registers", "shared", "stack", "spills"}
  /Compiling entry function/ {
    split($0, quoted, "\047")
    name = quoted[2]; architecture = quoted[4]
    gsub(/\(anonymous namespace\)::|\(sparkv::kernels::CudaWeightType\)/, "", name); sub(/\(.*/, "", name); sub(/.*::/, "", name)
    if (name ~ /^_Z/ && match(name, /[A-Z][A-Za-z]*Kernel/)) name = substr(name, RSTART, RLENGTH)
    stack = spills = shared = 0
  }
  /bytes stack frame/ {stack = $1; spills = $5 + $9}
  /Used [0-9]+ registers/ {
    for (i = 1; i < NF; ++i) {
      if ($i == "Used") registers = $(i + 1)
      if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $i
    }
    printf "%-26s %-6s %9d %7d %6d %6d\n", name, architecture, registers, shared, stack, spills
    ++kernels; total += spills
  }
  END {
    if (kernels == 0) {print "no kernel in the reports of ptxas"; exit 1}
    if (total > 0) {print "registers are spilled"; exit 1}
  }'
