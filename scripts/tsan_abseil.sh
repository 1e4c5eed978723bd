#!/usr/bin/env bash
# Builds the distribution's own Abseil version with ThreadSanitizer into .deps/tsan-abseil, for the preset cpu-tsan: the packaged
# libraries are not instrumented, so that absl::Mutex would order nothing that ThreadSanitizer sees. Same sources, patches and
# options as the package, shared libraries of the same names: gRPC loads them too. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

command -v dpkg-query >/dev/null || die "needs Debian's or Ubuntu's packages; elsewhere build your Abseil with -fsanitize=thread into $DEPS/tsan-abseil"
version=$(dpkg-query -W -f '${source:Version}' libabsl-dev 2>/dev/null) || die "libabsl-dev is not installed; run scripts/deps.sh first"
prefix=$DEPS/tsan-abseil
[[ -e $prefix/.complete-$version ]] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial"
# The sources lie beside the packages: wherever this machine gets the distribution's packages from.
apt-get indextargets --format '$(ORIGIN) deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
  sed -nE 's/^(Debian|Ubuntu) (deb-src .*)/\2/p' | sort -u >"$work/sources.list"
[[ -s $work/sources.list ]] || die "apt knows no index of Debian's or Ubuntu's packages; run: apt-get update"
apt_private=(-o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$work/lists"
  -o "Dir::Cache=$work" -o APT::Sandbox::User=)

say "fetching the sources of Abseil $version"
apt-get -qq "${apt_private[@]}" update || die "cannot read the source indexes; check the network"
(cd "$work" && apt-get -qq "${apt_private[@]}" source --download-only "abseil=$version") ||
  die "cannot fetch the sources of abseil $version"
mkdir "$work/src"
tar -xf "$work"/abseil_*.orig.tar.* -C "$work/src" --strip-components=1
tar -xf "$work"/abseil_*.debian.tar.* -C "$work/src"
while read -r patch; do
  [[ -z $patch || $patch == \#* ]] || patch -sp1 -d "$work/src" <"$work/src/debian/patches/$patch"
done <"$work/src/debian/patches/series"

say "building it with -fsanitize=thread"
rm -rf "$prefix"
cmake -S "$work/src" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_STANDARD=17 -DBUILD_SHARED_LIBS=ON \
  -DBUILD_TESTING=OFF -DCMAKE_CXX_FLAGS=-fsanitize=thread -DCMAKE_SHARED_LINKER_FLAGS=-fsanitize=thread \
  -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib >/dev/null || die "configuring Abseil failed"
cmake --build "$work/build" --parallel "${SPARKV_JOBS:-$(nproc)}" || die "building Abseil failed; the compiler's message is above"
cmake --install "$work/build" >/dev/null
touch "$prefix/.complete-$version"
