#!/usr/bin/env bash
# Shows datperf measuring between two processes, over this host's RDMA device if it has one that
# works, otherwise over TCP.
#
#   ci/demo.sh [--rxe | --vm | --uml]
#
#   --rxe      if this host has no such device: over soft-RoCE in the virtual machine instead of TCP
#   --vm       in the virtual machine, even if this host has a device
#   --uml      in the User Mode Linux, at native speed; ci/deps.sh uml must have built it
#
# GODAT_TEST_DEVICE chooses among several devices of this host.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
datperf=bin/datperf
[ -x $datperf ] || { echo "demo: no $datperf: run make build" >&2; exit 1; }

say() { echo "demo: $*" >&2; }
run() {
  printf '\n$ datperf %s\n' "$*"
  timeout 120 $datperf "$@"
}
machine() {
  local vm=rxe-vm.sh
  [ "$where" != --uml ] || vm=uml-vm.sh
  say "$1: datperf in the virtual machine, on soft-RoCE (rxe0)"
  "$here/$vm" --timeout 600 --env GODAT_TEST_DEVICE=rxe0 -- "$here/demo.sh"
  exit
}
usable() { # sets address; if no device is usable, sets why and fails
  local netdev
  [ -n "$device" ] || { why='this host has no RDMA device'; return 1; }
  [ -w /dev/infiniband/rdma_cm ] || { why="$device cannot be used: no access to /dev/infiniband/rdma_cm"; return 1; }
  netdev=$(cat "/sys/class/infiniband/$device/ports/1/gid_attrs/ndevs/0" 2>/dev/null || true)
  [ -n "$netdev" ] || { why="$device cannot be used: it is not there, or has no network device"; return 1; }
  address=$(ip -o addr show dev "$netdev" scope global | awk '{ sub("/.*", "", $4); print $4; exit }')
  [ -n "$address" ] || { why="$device cannot be used: its network device $netdev has no address"; return 1; }
}

where='' layers=udat,cverbs
for arg in "$@"; do
  case $arg in
    --rxe | --vm | --uml) where=$arg ;;
    *) say "unknown option '$arg'"; exit 2 ;;
  esac
done
case $where in --vm | --uml) machine 'as asked for' ;; esac
device=${GODAT_TEST_DEVICE:-$(basename "$(compgen -G '/sys/class/infiniband/*' | sort | head -n 1)")}
if ! usable; then
  [ "$where" != --rxe ] || machine "$why"
  say "$why: datperf over TCP, the device tcp:127.0.0.1 (make demo-rxe: on soft-RoCE, in a virtual machine)"
  device=tcp:127.0.0.1 address=127.0.0.1 layers=udat
fi

log=$(mktemp)
json=$(mktemp)
server=''
# shellcheck disable=SC2317 # called by the trap
stop() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -f "$log" "$json"
}
trap stop EXIT

echo "\$ datperf server --device $device &"
$datperf server --device "$device" >"$log" 2>&1 &
server=$!
for _ in $(seq 100); do # until there is output, at most 20 s
  [ ! -s "$log" ] || break
  kill -0 $server 2>/dev/null || break
  sleep 0.2
done
cat "$log"
kill -0 $server 2>/dev/null || { server=''; say "the server ended early"; exit 1; }

run client "$address" --device "$device" --test send,write,read --mode lat --layer "$layers" --size 64
run client "$address" --device "$device" --test send,write,read --mode bw --layer "$layers" --size 64K --iters 1000 --json "$json"
printf '\nAll figures with the settings and facts of both ends are one JSON document (--json FILE): %s bytes here.\n' "$(wc -c <"$json")"
