#!/usr/bin/env bash
# Measures everything of docs/performance.md, and writes it and out/performance.json. Run it alone on the machine.
#
#   ci/bench.sh [options] [PART...]     parts: loop scale compare wakeup; without one: all
#
#   --vm          in the virtual machine, even if this host has a device (GODAT_TEST_DEVICE chooses among several)
#   --rounds N    repeats of every figure (default 5)
#   --quick       few operations, one round: to see that it works
#   --docs DIR    where performance.md goes (default docs)
#   --json FILE   where all repeats go (default out/performance.json)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
vm=false options=()
while [ $# -gt 0 ]; do
  case $1 in
    --rounds | --docs | --json) [ $# -gt 1 ] || { echo "bench: $1 needs a value" >&2; exit 2; } ;;&
    --vm) vm=true; shift ;;
    --rounds | --docs | --json) options+=("$1" "$2"); shift 2 ;;
    --quick) options+=("$1"); shift ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    -*) echo "bench: unknown option '$1' (--help lists them)" >&2; exit 2 ;;
    *) break ;;
  esac
done

"$here/deps.sh" build bench
[ "$*" = loop ] || "$here/deps.sh" vm
out=$PWD/out/bench
rm -rf "$out"
mkdir -p "$out"
echo "bench: building" >&2
go build -o "$out/" ./cmd/datperf ./internal/bench
go build -tags nulldev -o "$out/loop" ./internal/bench/loop
go build -tags nulldev,godat_direct -o "$out/loop-direct" ./internal/bench/loop
go test -c -o "$out/udat.test" ./udat
cc -O2 -o "$out/pingpong" ci/bench/pingpong.c -lrdmacm -libverbs

device=${GODAT_TEST_DEVICE:-$(basename "$(compgen -G '/sys/class/infiniband/*' | sort | head -n 1)")}
if $vm || [ -z "$device" ] || ! [ -w /dev/infiniband/rdma_cm ]; then
  options+=(--vm)
else
  netdev=$(cat "/sys/class/infiniband/$device/ports/1/gid_attrs/ndevs/0" 2>/dev/null || true)
  address=$(ip -o addr show dev "${netdev:-none}" scope global 2>/dev/null | awk '{ sub("/.*", "", $4); print $4; exit }')
  [ -n "$address" ] || { echo "bench: the network device under $device has no address" >&2; exit 1; }
  options+=(--device "$device" --address "$address")
fi
exec "$out/bench" --bin "$out" "${options[@]}" "$@"
