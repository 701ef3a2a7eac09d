#!/usr/bin/env bash
# Compares figures of datperf and perftest for messages of 64 KiB. It measures perftest with itself,
# datperf as the client of perftest's server, and datperf as the server of perftest's client. A
# round measures all three, one after the other, for each program. The next round begins with
# another of the three. Prints perftest's median and spread, and for datperf two ratios to perftest:
# the median of the rounds' ratios, and the ratio of the best figures, which other load on the
# machine disturbs least. The status is 1 if both ratios of a figure are more than 10 % too high, or
# both more than 10 % too low. Nothing else should run on the machine.
#
#   make build && ci/uml-vm.sh -- ci/perftest-check.sh --iters 600 --seconds 240
#   ci/perftest-check.sh --device mlx5_0 --address 10.0.0.2      on a NIC, through its port and back
#
#   --seconds N   begin no round after this time (default 300)
#   --size N      message size in bytes (default 65536)
#   --iters N     iterations (default 1000 for bandwidth, 400 for latency); a test should last 100 ms or longer
#   --depth N     requests in flight in bandwidth tests (default 16: soft-RoCE loses packets with perftest's 128)
#   --cm          connect by the connection manager (-R)
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
datperf=$here/../bin/datperf device=rxe0 address=10.98.0.1 seconds=300 size=65536 iters='' depth=16 cm=()
while [ $# -gt 0 ]; do
  case $1 in
    --device | --address | --seconds | --size | --iters | --depth)
      [ $# -gt 1 ] || { echo "perftest-check: $1 needs a value" >&2; exit 2; } ;;&
    --device) device=$2; shift 2 ;;
    --address) address=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --size) size=$2; shift 2 ;;
    --iters) iters=$2; shift 2 ;;
    --depth) depth=$2; shift 2 ;;
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

# one PROGRAM SERVER CLIENT prints the client's figure. SERVER and CLIENT are either datperf or
# perftest. perftest stands for PROGRAM itself.
one() {
  local program=$1 server=("${pins[@]}") client=("${pinc[@]}") flags column=5 pid figure=''
  flags=("${cm[@]}" -d "$device" -s "$size" -n "${iters:-400}" -p "$port")
  case $program in
    ib_read_bw) flags+=(-o 4) ;;&
    *_bw) flags+=(-n "${iters:-1000}" -t "$depth"); column=4 ;;
  esac
  if [ "$2" = datperf ]; then server+=("$datperf" perftest "$program" --peer perftest); else server+=("$program"); fi
  if [ "$3" = datperf ]; then client+=("$datperf" perftest "$program" --peer perftest); else client+=("$program"); fi
  timeout 30 "${server[@]}" "${flags[@]}" >/dev/null 2>&1 &
  pid=$!
  while [ -z "$figure" ] && kill -0 $pid 2>/dev/null; do # a client may come before the server listens
    if [ ${#cm[@]} -gt 0 ]; then
      sleep 0.5
    else
      for _ in $(seq 200); do ss -ltn | grep -q ":$port " && break; sleep 0.02; done
    fi
    figure=$(timeout 30 "${client[@]}" "${flags[@]}" "$address" 2>/dev/null |
      awk -v size="$size" -v column=$column '$1 == size { print $column }')
  done
  wait $pid
  echo "$figure"
}

port=18515 round=0
pairs=('perftest perftest' 'perftest datperf' 'datperf perftest')
until [ "$SECONDS" -ge "$seconds" ]; do
  for program in ib_send_lat ib_write_lat ib_read_lat ib_send_bw ib_write_bw ib_read_bw; do
    for i in 0 1 2; do
      pair=${pairs[(round + i) % 3]}
      port=$((port + 1)) # the old port cannot be used for a minute
      # shellcheck disable=SC2086 # two words
      echo "$round $program ${pair/ /-} $(one $program $pair)" >>"$results"
    done
  done
  round=$((round + 1))
done
awk '
  NF == 4 { value[$1, $2, $3] = $4; rounds = $1 + 1 }
  NF != 4 { failed++ }
  function sorted(list, n,   i, j, t) {
    for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j] < list[j - 1]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
  }
  function median(list, n) { return (list[int((n + 1) / 2)] + list[int(n / 2) + 1]) / 2 }
  function ratio(program, pair,   r, n, list) { # the median of the rounds
    for (r = 0; r < rounds; r++)
      if (value[r, program, pair] > 0 && value[r, program, "perftest-perftest"] > 0)
        list[++n] = value[r, program, pair] / value[r, program, "perftest-perftest"]
    sorted(list, n)
    return n ? median(list, n) : 0
  }
  function best(program, pair,   r, v, b) {
    for (r = 0; r < rounds; r++) {
      v = value[r, program, pair]
      if (v > 0 && (!b || (program ~ /lat/ ? v < b : v > b))) b = v + 0
    }
    return b
  }
  function beyond(x, y) { return x > 1.1 && y > 1.1 || x < 0.9 && y < 0.9 }
  END {
    printf "%-14s %6s %18s %22s %22s %7s\n", "program", "unit", "perftest", "datperf client, best", "datperf server, best", "rounds"
    split("ib_send_lat ib_write_lat ib_read_lat ib_send_bw ib_write_bw ib_read_bw", all, " ")
    for (i = 1; i <= 6; i++) {
      p = all[i]
      n = 0
      for (r = 0; r < rounds; r++) if (value[r, p, "perftest-perftest"] > 0) own[++n] = value[r, p, "perftest-perftest"] + 0
      a = ratio(p, "perftest-datperf"); b = ratio(p, "datperf-perftest")
      if (!n || !a || !b) { bad++; printf "%-14s has no figures\n", p; continue }
      sorted(own, n)
      besta = best(p, "perftest-datperf") / best(p, "perftest-perftest")
      bestb = best(p, "datperf-perftest") / best(p, "perftest-perftest")
      off = beyond(a, besta) || beyond(b, bestb)
      bad += off
      printf "%-14s %6s %10.2f +-%3d %% %14.2fx, %.2fx %14.2fx, %.2fx %7d%s\n", p, p ~ /lat/ ? "us" : "MiB/s", median(own, n),
        (own[n] - own[1]) / 2 / median(own, n) * 100, a, besta, b, bestb, n, off ? "  beyond 10 %" : ""
    }
    if (failed) print failed " runs failed"
    exit bad > 0
  }' "$results"
