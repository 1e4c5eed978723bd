#!/usr/bin/env bash
# Installs what is missing, builds (Release) and runs every test. Extra arguments go to ctest,
# for instance: scripts/test.sh -R codec
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh
scripts/deps.sh
configure_and_build cpu-release
ctest --test-dir build/cpu-release --output-on-failure --no-tests=error "$@"
