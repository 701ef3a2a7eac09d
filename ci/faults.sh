#!/usr/bin/env bash
# Provokes faults on every fabric of this machine, and writes docs/reliability.md. The last line of
# its output counts the results.
#
#   ci/faults.sh [--long] [--run TEXT] [--page FILE]
#
#   --long       all rounds, and soft-iWARP even if its module must be built first: takes hours
#   --run TEXT   only scenarios whose names contain TEXT; the page then goes to out/faults/page.md
#   --page FILE  file for the page
#
# Fabrics: on this host, mem0 and tcp, and loop0 for rdmanet and cverbs; in the virtual machine,
# rxe0, and siw0 if ci/deps.sh siw has built its module; between two virtual machines, rxe0 and tcp.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
page=docs/reliability.md args=() long=false soak=20s limit=1800
while [ $# -gt 0 ]; do
  case $1 in
    --long) long=true; args+=(-long) soak=30m limit=10800; shift ;;
    --run) args+=(-run "$2"); page=out/faults/page.md; shift 2 ;;
    --page) page=$2; shift 2 ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    *) echo "faults: unknown option '$1' (--help lists them)" >&2; exit 2 ;;
  esac
done
! $long || ci/deps.sh siw

out=$PWD/out/faults
rm -rf "$out"
mkdir -p "$out"
go -C lab build -o ../bin/faults ./faults
# Some scenarios run tests of these packages: those of the group callers, and a hostile one of tcp.
# One with two hosts runs datperf.
go test -c -o "$out/tests/" ./udat ./cverbs ./udat/internal/tcpfabric
go build -o "$out/tests/" ./cmd/datperf
go test -c -race -o "$out/race/" ./udat ./cverbs

# Status 1 means that a scenario has failed, which the page shows. Any other status, or a missing
# result, is a failure of this script.
on() { # RESULT DEVICE ARGUMENTS... -- COMMAND..., which the arguments of bin/faults follow
  local result=$1 device=$2 tests=$out/tests status=0 more=()
  shift 2
  while [ "$1" != -- ]; do more+=("$1"); shift; done
  shift
  case $device in mem0 | loop0) tests=$out/race ;; esac
  "$@" "$PWD/bin/faults" -json "$out/$result.json" -tests "$tests" "${args[@]}" "${more[@]}" "$device" || status=$?
  [ "$status" -le 1 ] && [ -s "$out/$result.json" ] && return
  echo "faults: not all results of $result (status $status)" >&2
  : >"$out/failed"
}

siw=false
if compgen -G "${GODAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/godat}/linux/current/lib/modules/*/extra/siw.ko" >/dev/null; then
  siw=true
else
  echo "faults: soft-iWARP is left out: ci/deps.sh siw builds its module" >&2
fi
# The fabrics run one after another, because two emulated machines that compute share the processors
# badly. The soaks are long and run at the same time.
vm=(ci/rxe-vm.sh --timeout "$limit" --out "$out")
one_host() {
  on mem0 mem0 -soak 0 -- env
  on loop0 loop0 -- lab/loopdev/loop.sh
  on tcp tcp:127.0.0.1 -soak 0 -- env
  on rxe0 rxe0 -soak 0 -- "${vm[@]}" --
  ! $siw || on siw0 siw0 -soak 0 -- "${vm[@]}" --device siw --
  on mem0-soak mem0 -groups soak -soak $soak -- env &
  on tcp-soak tcp:127.0.0.1 -groups soak -soak $soak -- env &
  on rxe0-soak rxe0 -groups soak -soak $soak -- "${vm[@]}" -- &
  ! $siw || on siw0-soak siw0 -groups soak -soak $soak -- "${vm[@]}" --device siw -- &
  wait
}
one_host &
# Two guests, connected by a cable. They wait most of the time. The second one serves the first,
# which tells it to power off.
cable() { # NAME DEVICE GROUPS
  local name=$1 other
  mkdir -p "$out/$name"
  until [ -e "$out/$name/done" ]; do
    ci/rxe-vm.sh --timeout $limit --join "$out/$name/2" --out "$out/$name" -- "$PWD/bin/faults" -host :7000 || true
    if [ -e "$out/$name/away" ] && [ ! -e "$out/$name/done" ]; then # stay off longer than the keep-alive's limit
      rm "$out/$name/away"
      sleep 100
    fi
  done >"$out/$name.log" 2>&1 &
  other=$!
  on "$name" "$2" -groups "$3" -peer-at 10.98.0.2:7000 -- "${vm[@]}" --join "$out/$name/1" --
  touch "$out/$name/done"
  pkill -TERM -P "$other" 2>/dev/null || true
  wait "$other" || true
}
{
  cable links rxe0 "peer,link and device"
  cable tcp-links tcp "peer,link and device"
} &
cable hosts rxe0 "wire,two hosts,rdmanet"
cable tcp-hosts tcp "wire,two hosts,rdmanet"
wait
status=0
results=("$out"/*.json)
bin/faults -page "$page" "${results[@]}" || status=1
[ ! -e "$out/failed" ] || status=1
exit $status
