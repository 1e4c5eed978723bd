#!/usr/bin/env bash
# Builds kernels, base, kv and codec for 64-bit Arm and runs their tests in qemu-user: the same bytes as on x86-64, and NEON
# twins equal to the scalar ones. Only the distribution's packages are needed; those for Arm are unpacked under .deps/arm64 and
# never installed. Safe to run again.
#   scripts/arm_check.sh [--fetch-only | --no-fetch] [--build DIR]
# --fetch-only  only fetch what is missing
# --no-fetch    exit with 77 instead of fetching when something is missing
# --build DIR   build there instead of build/arm64
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

usage="usage: scripts/arm_check.sh [--fetch-only | --no-fetch] [--build DIR]"
fetch=1 check=1 build=build/arm64
while (($#)); do
  case $1 in
    --fetch-only) check=0 ;;
    --no-fetch) fetch=0 ;;
    --build) build=${2:?$usage}; shift ;;
    *) die "unknown option '$1'; $usage" ;;
  esac
  shift
done

root=$DEPS/arm64/root
complete=$DEPS/arm64/.complete-1

missing() {
  if ((fetch)); then die "$1"; fi
  say "${0##*/}: skipped: $1"
  exit 77
}

fetch_root() {
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/debs"
  # The Arm packages lie beside our own: wherever this machine gets the distribution's packages from. A private apt state leaves
  # the machine's own as it is.
  apt-get indextargets --format '$(ORIGIN) deb [arch=arm64] $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    sed -nE 's/^(Debian|Ubuntu) (deb .*)/\2/p' | sort -u >"$work/sources.list"
  [[ -s $work/sources.list ]] || missing "apt knows no index of Debian's or Ubuntu's packages; run: apt-get update"
  local apt_private=(-o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$work/lists" -o Dir::State::status=/dev/null -o "Dir::Cache=$work"
    -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=)
  say "fetching libraries for Arm (10 MB, once)"
  apt-get -qq "${apt_private[@]}" update || missing "no Arm packages where this machine gets its own from"
  # Names of shared libraries differ between releases: ask. The C and C++ libraries come with the compiler.
  local packages
  packages=$(apt-get "${apt_private[@]}" --simulate --no-install-recommends install libabsl-dev libssl-dev catch2 |
    awk '$1 == "Inst" && $2 ~ /^(libabsl|libssl|catch2)/ {print $2}') || missing "apt cannot resolve libabsl-dev for Arm"
  (cd "$work/debs" && apt-get -qq "${apt_private[@]}" download $packages) || missing "cannot fetch: $packages"
  rm -rf "$root" && mkdir -p "$root"
  local deb
  for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$root"; done
  touch "$complete"
}

for tool in aarch64-linux-gnu-g++ qemu-aarch64 apt-get; do
  command -v "$tool" >/dev/null || missing "$tool is not here; run scripts/deps.sh (packages g++-aarch64-linux-gnu and qemu-user)"
done
if [[ ! -e $complete ]]; then
  ((fetch)) || missing "$root is not here; run scripts/arm_check.sh"
  fetch_root
fi
((check)) || exit 0

cmake --preset arm64 -B "$build" -DSPARKV_ARM_ROOT="$root" >&2 || die "configuring failed; the message above names what is missing"
cmake --build "$build" --parallel "${SPARKV_JOBS:-$(nproc)}" >&2 || die "the build failed; the compiler's message is above"
# One case left out: minutes in the emulator, for scalar code that the same machine has tested natively.
ctest --test-dir "$build" --output-on-failure --no-tests=error --exclude-regex 'prefill attention .* at every edge' --parallel "${SPARKV_JOBS:-$(nproc)}"
