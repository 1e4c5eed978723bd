#!/usr/bin/env bash
# From nothing to a streamed answer about a 4,000-token document: installs, builds, starts a server and an edge daemon with a
# 40 Mbit/s link between them, adds the document, asks, and shows where the time went.
#   scripts/demo.sh [--keep] [--mbit N] [--rtt-ms N] [--question TEXT] [--document FILE]
# --keep leaves both daemons running and prints how to talk to them. A second run reuses the build and the stored context.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh

keep=0 mbit=40 rtt_ms=20
document=scripts/demo/hacker-folklore.txt
document_sha256=f7b7a746a000c7b96075a00262638b60d274c8ef7ddfcc12be922ce3ef60e542
question="What happened to the computer when the switch was flipped?"
usage="usage: scripts/demo.sh [--keep] [--mbit N] [--rtt-ms N] [--question TEXT] [--document FILE]"
while (($#)); do
  case $1 in
    --keep) keep=1 ;;
    --mbit|--rtt-ms|--question|--document)
      (($# > 1)) || die "$1 needs a value; $usage"
      case $1 in
        --mbit) mbit=$2 ;;
        --rtt-ms) rtt_ms=$2 ;;
        --question) question=$2 ;;
        --document) document=$2 document_sha256= ;;
      esac
      shift ;;
    -h|--help) printf '%s\n' "$usage"; exit 0 ;;
    *) die "unknown option '$1'; $usage" ;;
  esac
  shift
done
[[ -r $document ]] || die "cannot read $document"
if [[ -n $document_sha256 && $(sha256sum "$document" | cut -d' ' -f1) != "$document_sha256" ]]; then
  die "$document was changed; restore it with: git checkout $document"
fi

scripts/deps.sh --no-arm --no-cuda
configure_and_build cpu-release sparkv-server sparkv-edge sparkv
bin=$PWD/build/cpu-release
server=$bin/server/sparkv-server edge=$bin/edge/sparkv-edge sparkv=$bin/edge/cli/sparkv
state=${SPARKV_DEMO_STATE:-$DEPS/demo}
mkdir -p "$state"

pids=()
stop_all() {
  local pid
  for pid in "${pids[@]:-}"; do [[ -z $pid ]] || kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]:-}"; do [[ -z $pid ]] || wait "$pid" 2>/dev/null || true; done
}
trap 'code=$?; if ((code != 0 || !keep)); then stop_all; fi; exit $code' EXIT
trap 'keep=0; exit 130' INT TERM

# start NAME LOG COMMAND... : waits for "listening on ADDRESS" and sets $address.
start() {
  local name=$1 log=$2; shift 2
  "$@" >"$log.out" 2>"$log" &
  local pid=$!
  pids+=("$pid")
  for _ in $(seq 600); do
    address=$(sed -n 's/^listening on //p' "$log.out" | head -n 1)
    [[ -z $address ]] || return 0
    kill -0 "$pid" 2>/dev/null || { tail -n 5 "$log" >&2; die "$name ended at start; its messages are in $log"; }
    sleep 0.1
  done
  die "$name did not start within a minute; its messages are in $log"
}

say; say "== server and edge daemon on loopback, link $mbit Mbit/s, RTT $rtt_ms ms"
start sparkv-server "$state/server.log" "$server" --listen 127.0.0.1:0 --insecure --model "$MODEL_FILE" --data-dir "$state/server" \
  --profile "$PROFILE_FILE"
server_address=$address
start sparkv-edge "$state/edge.log" "$edge" --listen 127.0.0.1:0 --insecure --model "$MODEL_FILE" --data-dir "$state/edge" \
  --server "$server_address" --link-mbit "$mbit" --link-rtt-ms "$rtt_ms"
export SPARKV_EDGE=$address

# Named, so that the edge waits for the model profile (once; 7 MB) instead of adding the document as generic.
codec=aatc-pred
name=$(basename "$document" .txt)-$(sha256sum "$document" | cut -c1-8)-$codec
say; say "== adding $document as '$name'"
"$sparkv" context add "$document" --name "$name" --codec "$codec"

say; say "== question: $question"
"$sparkv" ask "$name" "$question" --policy sparkv --drop-loaded --timeline --max-tokens 48

say "(the demo's model is small: the answer shows the way of the data, not what a larger model knows)"

for policy in stream local; do
  say; say "== the same by policy '$policy'"
  "$sparkv" ask "$name" "$question" --policy "$policy" --drop-loaded --max-tokens 1
done
say; say "== asked again, now that it is loaded"
"$sparkv" ask "$name" "$question" --max-tokens 1

if ((keep)); then
  disown -a
  say; say "both daemons keep running (pids ${pids[*]}); talk to them with:"
  say "  export SPARKV_EDGE=$SPARKV_EDGE"
  say "  $sparkv ask $name \"What is a hack?\""
  say "  $sparkv chat $name"
  say "  kill ${pids[*]}    # to stop them"
fi
