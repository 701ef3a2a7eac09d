#!/usr/bin/env bash
# Compares figures of datperf and perftest for messages of 64 KiB: perftest with itself, datperf as the client of
# perftest's server, and datperf as the server of perftest's client, in turn. Prints the median of each and the ratio to
# perftest with itself; status 1 if one differs by more than 10 %. In under three minutes, alone on the machine:
#
#   make build && ci/uml-vm.sh --timeout 175 -- ci/perftest-check.sh
#   ci/perftest-check.sh --device mlx5_0 --address 10.0.0.2      on a NIC, through its port and back
#
#   --seconds N   rounds begin until then (default 140)
#   --size N      message size in bytes (default 65536)
#   --iters N     iterations, where 1000 (bandwidth) and 400 (latency) take too long: on an emulated machine
#   --cm          over the connection manager (-R)
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
datperf=$here/../bin/datperf device=rxe0 address=10.98.0.1 seconds=140 size=65536 iters='' cm=()
while [ $# -gt 0 ]; do
  case $1 in
    --device | --address | --seconds | --size | --iters) [ $# -gt 1 ] || { echo "perftest-check: $1 needs a value" >&2; exit 2; } ;;&
    --device) device=$2; shift 2 ;;
    --address) address=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --size) size=$2; shift 2 ;;
    --iters) iters=$2; shift 2 ;;
    --cm) cm=(-R); shift ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    *) echo "perftest-check: unknown option '$1' (--help lists them)" >&2; exit 2 ;;
  esac
done
[ -x "$datperf" ] || { echo "perftest-check: no $datperf: run make build" >&2; exit 1; }
results=$(mktemp)
trap 'rm -f "$results"' EXIT
pins=(taskset -c 0) pinc=(taskset -c 1)
[ "$(nproc)" -gt 1 ] || pinc=(taskset -c 0)

# one PROGRAM SERVER CLIENT: the client's figure. SERVER and CLIENT are the command, or perftest for PROGRAM itself.
one() {
  local program=$1 server=("${pins[@]}") client=("${pinc[@]}") n=1000 column=4 flags
  case $program in *_lat) n=400 column=5 ;; esac
  flags=("${cm[@]}" -d "$device" -s "$size" -n "${iters:-$n}" -p "$port")
  if [ "$2" = datperf ]; then server+=("$datperf" perftest "$program" --peer perftest); else server+=("$program"); fi
  if [ "$3" = datperf ]; then client+=("$datperf" perftest "$program" --peer perftest); else client+=("$program"); fi
  timeout 15 "${server[@]}" "${flags[@]}" >/dev/null 2>&1 &
  local pid=$!
  if [ ${#cm[@]} -gt 0 ]; then
    sleep 0.5
  else
    for _ in $(seq 200); do ss -ltn | grep -q ":$port " && break; sleep 0.02; done
  fi
  timeout 15 "${client[@]}" "${flags[@]}" "$address" 2>/dev/null | awk -v size="$size" -v column=$column '$1 == size { print $column }'
  wait $pid
}

port=18515
until [ "$SECONDS" -ge "$seconds" ]; do
  for program in ib_send_lat ib_write_lat ib_read_lat ib_send_bw ib_write_bw ib_read_bw; do
    for pair in 'perftest perftest' 'perftest datperf' 'datperf perftest'; do
      [ "$SECONDS" -lt $((seconds + 20)) ] || break
      port=$((port + 1)) # a port rests for a minute
      # shellcheck disable=SC2086 # two words
      echo "$program ${pair/ /-} $(one $program $pair)" >>"$results"
    done
  done
done
awk '
  NF == 3 { n = ++count[$1, $2]; value[$1, $2, n] = $3 }
  NF != 3 { failed++ }
  function median(p, q,   n, i, j, t, v) {
    n = count[p, q]
    for (i = 1; i <= n; i++) v[i] = value[p, q, i] + 0
    for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    return n ? (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2 : 0
  }
  END {
    printf "%-14s %8s %12s %22s %22s %7s\n", "program", "unit", "perftest", "datperf client", "datperf server", "rounds"
    split("ib_send_lat ib_write_lat ib_read_lat ib_send_bw ib_write_bw ib_read_bw", all, " ")
    for (i = 1; i <= 6; i++) {
      p = all[i]
      base = median(p, "perftest-perftest"); a = median(p, "perftest-datperf"); b = median(p, "datperf-perftest")
      if (!base || !a || !b) { bad++; printf "%-14s has no figures\n", p; continue }
      off = (a / base > 1.1 || a / base < 0.9 || b / base > 1.1 || b / base < 0.9)
      bad += off
      printf "%-14s %8s %12.2f %14.2f (%.2fx) %14.2f (%.2fx) %7d%s\n", p, p ~ /lat/ ? "us p50" : "MiB/s", base, a, a / base,
        b, b / base, count[p, "perftest-perftest"], off ? "  beyond 10 %" : ""
    }
    if (failed) print failed " runs failed"
    exit bad > 0
  }' "$results"
