#!/usr/bin/env bash
# Makes .deps/peer, a Python virtual environment with llama.cpp's bindings, the peer of `sparkv bench`.
# llama-cpp-python builds from source: about ten minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh
VERSION=0.3.36
if [[ -x $DEPS/peer/bin/python ]] && "$DEPS/peer/bin/python" -c "import llama_cpp; assert llama_cpp.__version__ == '$VERSION'" 2>/dev/null; then
  say "$DEPS/peer has llama-cpp-python $VERSION already"
  exit 0
fi
say "building llama-cpp-python $VERSION for this machine (about ten minutes)"
python3 -m venv "$DEPS/peer" || die "python3 -m venv failed; install python3-venv"
"$DEPS/peer/bin/pip" install --quiet --disable-pip-version-check numpy gguf ||
  die "could not fetch numpy and gguf from PyPI"
CMAKE_ARGS="-DGGML_NATIVE=ON" "$DEPS/peer/bin/pip" install --disable-pip-version-check "llama-cpp-python==$VERSION" >&2 ||
  die "llama-cpp-python did not build; a C++ compiler and cmake are needed (scripts/deps.sh)"
say "done: sparkv bench prefill --model M.gguf --peer-python $DEPS/peer/bin/python"
