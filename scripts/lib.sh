# Shared by the scripts here; sourced from the repository root.
DEPS=${SPARKV_DEPS:-$PWD/.deps}
MODEL_FILE=${SPARKV_TEST_MODEL:-$DEPS/model/SmolLM2-135M-Instruct.Q4_1.gguf}
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
