#!/bin/sh
# Judges every trace of a folder in continuous integration. It needs the program bindrune and no network.
#
#   sh check-traces.sh TRACES REPORTS [OPTION…]
#
# REPORTS gets the text of each trace, a line for each record; report.sarif, which names findings by those lines; and
# report.xml in JUnit's format. TRACES/known.json, if it is there, has findings that do not count: write it with
#
#   bindrune trace check TRACES --write-baseline TRACES/known.json
#
# OPTIONs are those of `bindrune trace check`, as --party host. The status is 1 if there is a new finding, 2 if a trace
# could not be read to its end. BINDRUNE names another program than the one on the path.
set -eu
if [ $# -lt 2 ] || [ ! -d "$1" ]; then
  echo "usage: sh check-traces.sh TRACES REPORTS [OPTION…], where TRACES is a folder" >&2
  exit 2
fi
traces=$1 reports=$2 bindrune=${BINDRUNE:-bindrune}
shift 2
mkdir -p "$reports"
if [ -f "$traces/known.json" ]; then set -- --baseline "$traces/known.json" "$@"; fi
status=0
"$bindrune" trace check "$traces" --sarif "$reports/report.sarif" --junit "$reports/report.xml" "$@" || status=$?
# The texts that the report names, at the same paths below REPORTS.
find "$traces" -type f ! -name '.*' ! -name known.json | while IFS= read -r trace; do
  mkdir -p "$reports/$(dirname "$trace")"
  "$bindrune" trace show "$trace" >"$reports/$trace.txt" 2>"$reports/errors" || [ -s "$reports/$trace.txt" ] || rm "$reports/$trace.txt"
done
rm -f "$reports/errors"
exit "$status"
