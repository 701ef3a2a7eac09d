#!/usr/bin/env bash
# Measures everything of docs/performance.md, and writes it and out/performance.json. Run it alone on the machine.
#
#   ci/bench.sh [options] [PART...]     parts: loop streams compare rsockets scale; without one: all; and provider
#
# What needs a verbs device runs on the best machine there is: this host's own device (GODAT_TEST_DEVICE chooses among
# several), the virtual machine if KVM works, a User Mode Linux, else the emulated machine, whose figures have no marks.
#
#   --machine M   that machine: host, kvm, uml or tcg
#   --rounds N    repeats of every figure, as far as time permits (default 5)
#   --quick       few operations, one round: to see that it works
#   --page FILE   where the tables go (default docs/performance.md)
#   --json FILE   where all repeats go (default out/performance.json)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
machine='' options=()
while [ $# -gt 0 ]; do
  case $1 in
    --machine | --rounds | --page | --json) [ $# -gt 1 ] || { echo "bench: $1 needs a value" >&2; exit 2; } ;;&
    --machine) machine=$2; shift 2 ;;
    --rounds | --page | --json) options+=("$1" "$2"); shift 2 ;;
    --quick) options+=("$1"); shift ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    -*) echo "bench: unknown option '$1' (--help lists them)" >&2; exit 2 ;;
    *) break ;;
  esac
done

"$here/deps.sh" build bench
device=${GODAT_TEST_DEVICE:-$(basename "$(compgen -G '/sys/class/infiniband/*' | sort | head -n 1)")}
best() {
  if [ -n "$device" ] && [ -w /dev/infiniband/rdma_cm ]; then
    echo host
  elif [ -w /dev/kvm ] && "$here/deps.sh" vm && ! "$here/rxe-vm.sh" -- grep -q TCG /proc/cpuinfo; then
    echo kvm
  elif "$here/deps.sh" uml && "$here/uml-vm.sh" -- true; then
    echo uml
  else
    "$here/deps.sh" vm && echo tcg
  fi
}
if [[ " $* " =~ ^\ (loop |streams )+$ ]]; then
  machine=host # they need no device
fi
machine=${machine:-$(best)}
case $machine in
  uml) "$here/deps.sh" uml ;;
  kvm | tcg) "$here/deps.sh" vm ;;
esac
options+=(--machine "$machine")
if [[ " $* " =~ ^\ (loop |streams )+$ ]]; then
  options+=(--device none --address none)
elif [ "$machine" = host ]; then
  netdev=$(cat "/sys/class/infiniband/$device/ports/1/gid_attrs/ndevs/0" 2>/dev/null || true)
  address=$(ip -o addr show dev "${netdev:-none}" scope global 2>/dev/null | awk '{ sub("/.*", "", $4); print $4; exit }')
  [ -n "$address" ] || { echo "bench: the network device under $device has no address" >&2; exit 1; }
  options+=(--device "$device" --address "$address")
fi

out=$PWD/out/bench
rm -rf "$out"
mkdir -p "$out"
echo "bench: building" >&2
go build -o "$out/" ./cmd/datperf ./internal/bench ./internal/bench/stream
go build -tags nulldev -o "$out/loop" ./internal/bench/loop
go build -tags nulldev -o "$out/stream-loop" ./internal/bench/stream
go build -tags nulldev,godat_direct -o "$out/loop-direct" ./internal/bench/loop
if [[ " $* " = *" provider "* ]]; then
  "$here/deps.sh" provider
  go build -tags dat2 -buildmode=c-shared -o "$out/libgodat.so" ./cmd/libgodat
fi
exec "$out/bench" --bin "$out" "${options[@]}" "$@"
