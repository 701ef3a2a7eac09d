#!/usr/bin/env bash
# datperf in two processes over real verbs: on this host's device if it has one, else on rxe in the virtual machine.
#
#   ci/demo.sh [--vm]      --vm: in the virtual machine, even if this host has a device
#
# GODAT_TEST_DEVICE chooses among several devices of this host.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
datperf=bin/datperf
[ -x $datperf ] || { echo "demo: no $datperf: run make build" >&2; exit 1; }

device=${GODAT_TEST_DEVICE:-$(basename "$(compgen -G '/sys/class/infiniband/*' | sort | head -n 1)")}
if [ "${1:-}" = --vm ] || [ -z "$device" ] || ! [ -w /dev/infiniband/rdma_cm ]; then
  echo "demo: datperf in the virtual machine, on rxe0" >&2
  exec "$here/rxe-vm.sh" --timeout 300 --env GODAT_TEST_DEVICE=rxe0 -- "$here/demo.sh"
fi

netdev=$(cat "/sys/class/infiniband/$device/ports/1/gid_attrs/ndevs/0" 2>/dev/null || true)
[ -n "$netdev" ] || { echo "demo: no network device under $device" >&2; exit 1; }
address=$(ip -o addr show dev "$netdev" scope global | awk '{ sub("/.*", "", $4); print $4; exit }')
[ -n "$address" ] || { echo "demo: $netdev, the network device under $device, has no address" >&2; exit 1; }

log=$(mktemp)
json=$(mktemp)
server=''
# shellcheck disable=SC2317 # called by the trap
stop() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -f "$log" "$json"
}
trap stop EXIT

run() {
  printf '\n$ datperf %s\n' "$*"
  timeout 120 $datperf "$@"
}

echo "\$ datperf server --device $device &"
$datperf server --device "$device" >"$log" 2>&1 &
server=$!
for _ in $(seq 100); do # until it says something, or 20 s
  [ ! -s "$log" ] || break
  kill -0 $server 2>/dev/null || break
  sleep 0.2
done
cat "$log"
kill -0 $server 2>/dev/null || { server=''; echo "demo: the server ended early" >&2; exit 1; }

run client "$address" --device "$device" --test send,write,read --mode lat --layer udat,cverbs --size 64
run client "$address" --device "$device" --test send,write,read --mode bw --layer udat,cverbs --size 64K --iters 1000 --json "$json"
printf '\nAll figures with the settings and facts of both ends are one JSON document (--json FILE): %s bytes here.\n' "$(wc -c <"$json")"
