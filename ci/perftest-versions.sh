#!/usr/bin/env bash
# Measures between datperf and perftest's eight programs, with datperf once as the server and once
# as the client of each. Each FOLDER contains the programs of a version of perftest. Prints a line
# for each measurement. The status is 1 if one failed.
#
#   make build && ci/rxe-vm.sh -- ci/perftest-versions.sh FOLDER...
#
#   DEVICE=rxe0 ADDRESS=10.98.0.1   device and its address; packets go out and come back there (these are the defaults)
set -uo pipefail

datperf=$(cd "$(dirname "$0")/.." && pwd)/bin/datperf
device=${DEVICE:-rxe0} address=${ADDRESS:-10.98.0.1}
if [ $# = 0 ] || ! [ -x "$datperf" ]; then
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
  exit 2
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0

# both NAME SERVER... -- CLIENT...
both() {
  local name=$1 server=() pid status ended
  shift
  while [ "$1" != -- ]; do
    server+=("$1")
    shift
  done
  shift
  timeout 120 "${server[@]}" >"$tmp/server" 2>&1 &
  pid=$!
  for _ in $(seq 200); do
    ss -lnt | grep -q ':18515 ' && break
    sleep 0.1
  done
  timeout 120 "$@" "$address" >"$tmp/client" 2>&1
  status=$?
  wait $pid
  ended=$?
  echo "$name: client $status, server $ended"
  if [ $status != 0 ] || [ $ended != 0 ]; then
    failed=1
    tail -n 5 "$tmp/client" "$tmp/server"
  fi
}

for folder in "$@"; do
  while read -r program flags; do
    read -ra args <<<"$flags"
    foreign=("$folder/$program" -d "$device" -F "${args[@]}")
    own=("$datperf" perftest "$program" --peer perftest -d "$device" "${args[@]}")
    both "$folder/$program, perftest serves" "${foreign[@]}" -- "${own[@]}"
    both "$folder/$program, datperf serves" "${own[@]}" -- "${foreign[@]}"
  done <<'PROGRAMS'
ib_send_lat -s 4096 -n 50
ib_send_bw -s 4096 -n 100
ib_write_lat -s 4096 -n 50
ib_write_bw -s 4096 -n 100 -q 2
ib_read_lat -s 4096 -n 50
ib_read_bw -s 4096 -n 100
ib_atomic_lat -n 50
ib_atomic_bw -n 100
PROGRAMS
done
exit $failed
