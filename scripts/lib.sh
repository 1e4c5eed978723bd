# Shared by the scripts here; sourced from the repository root.
DEPS=${SPARKV_DEPS:-$PWD/.deps}
MODEL_FILE=${SPARKV_TEST_MODEL:-$DEPS/model/SmolLM2-135M-Instruct.Q4_1.gguf}
CUDA_VERSION=13.0
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
PROFILE_FILE=deploy/profiles/SmolLM2-135M-Instruct.Q4_1.skvp  # of that model

say() { printf '%s\n' "$*" >&2; }
die() { say "${0##*/}: $*"; exit 1; }

as_root() {
  if [[ $(id -u) == 0 ]]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "needs root for: $*; run as root or install sudo"; fi
}

model_is_right() { [[ $(sha256sum "$1" | cut -d' ' -f1) == "$MODEL_SHA256" ]]; }

libtorch_dir() { printf '%s' "${SPARKV_LIBTORCH:-$DEPS/libtorch/torch}"; }

# configure_and_build PRESET [targets...] : a build folder build/PRESET; without targets everything.
configure_and_build() {
  local preset=$1; shift
  cmake --preset "$preset" -DSPARKV_LIBTORCH="$(libtorch_dir)" -DSPARKV_TEST_MODEL="$MODEL_FILE" >&2 ||
    die "configuring failed; the message above names what is missing"
  cmake --build "build/$preset" --parallel "${SPARKV_JOBS:-$(nproc)}" ${1:+--target "$@"} >&2 ||
    die "the build failed; the compiler's message is above"
}

# find_nvcc: prints the path of CUDA's compiler, or fails.
find_nvcc() {
  local nvcc
  for nvcc in "${SPARKV_NVCC:-}" "$(command -v nvcc)" /usr/local/cuda/bin/nvcc "$DEPS/cuda/nvidia/cu13/bin/nvcc"; do
    if [[ -n $nvcc && -x $nvcc ]]; then printf '%s' "$nvcc"; return 0; fi
  done
  return 1
}

# pip_unpack DIR PACKAGE... : unpacks wheels, showing how much has arrived.
pip_unpack() {
  local dir=$1 wheels; shift
  mkdir -p "$DEPS"
  wheels=$(mktemp -d "$DEPS/wheels.XXXXXX")
  (while sleep 10; do say "  $(du -sm "$wheels" "$dir" 2>/dev/null | awk '{s+=$1} END {print s+0}') MB so far"; done) &
  local ticker=$!
  local code=0
  TMPDIR=$wheels python3 -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps \
    --no-warn-script-location --root-user-action=ignore --upgrade --target "$dir" "$@" || code=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  rm -rf "$wheels"
  return $code
}
