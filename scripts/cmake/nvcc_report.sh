#!/bin/sh
# nvcc_report.sh REPORT COMMAND...: runs nvcc; what it says, of registers and spills above all, becomes the file REPORT, or
# comes to the terminal when it fails.
report=$1
shift
mkdir -p "$(dirname "$report")"
if "$@" >"$report" 2>&1; then exit 0; fi
cat "$report" >&2
rm -f "$report"
exit 1
