#!/usr/bin/env bash
# Measures the figures of docs/performance.md, and writes that page with its pictures,
# docs/performance-details.md and docs/performance.json. Nothing else should run on the machine.
#
#   ci/bench.sh [options] [PART...]     parts: loop pair tcp device (the default), and provider
#
# A part that is not measured keeps its values in docs/performance.json, with their date and commit.
# The files are written after each part, so a run that is interrupted loses only the part that it
# was measuring.
#
# Parts that need a verbs device run on the best machine available: this host if it has a device
# (GODAT_TEST_DEVICE chooses among several), the virtual machine if KVM works, a User Mode Linux, or
# else the emulated machine, whose figures are not judged.
#
#   --time T      time for all parts together (default 20m); a part that ends early leaves its time to the others
#   --rounds N    largest number of rounds (default: until the figures are decided or the time is over)
#   --machine M   machine for the parts that need a device: host, kvm, uml or tcg
#   --quick       few operations and one round, to check that everything works
#   --pages DIR   folder of the pages (default docs)
#   --json FILE   file with all values (default docs/performance.json)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
machine='' options=()
while [ $# -gt 0 ]; do
  case $1 in
    --machine | --rounds | --time | --pages | --json) [ $# -gt 1 ] || { echo "bench: $1 needs a value" >&2; exit 2; } ;;&
    --machine) machine=$2; shift 2 ;;
    --rounds | --time | --pages | --json) options+=("$1" "$2"); shift 2 ;;
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
no_device='^ ((loop|pair|tcp) )+$'
if [[ " $* " =~ $no_device ]]; then
  machine=host
fi
machine=${machine:-$(best)}
case $machine in
  uml) "$here/deps.sh" uml ;;
  kvm | tcg) "$here/deps.sh" vm ;;
esac
options+=(--machine "$machine")
if [ "$machine" = host ] && ! [[ " $* " =~ $no_device ]]; then
  netdev=$(cat "/sys/class/infiniband/$device/ports/1/gid_attrs/ndevs/0" 2>/dev/null || true)
  address=$(ip -o addr show dev "${netdev:-none}" scope global 2>/dev/null | awk '{ sub("/.*", "", $4); print $4; exit }')
  [ -n "$address" ] || { echo "bench: the network device under $device has no address" >&2; exit 1; }
  options+=(--device "$device" --address "$address")
fi

out=$PWD/out/bench
rm -rf "$out"
mkdir -p "$out"
echo "bench: building" >&2
go build -o "$out/" ./cmd/datperf
go -C lab build -o "$out/" ./bench ./bench/stream ./bench/loop
go -C lab build -tags godat_direct -o "$out/loop-direct" ./bench/loop
cp "$(lab/loopdev/loop.sh)" "$out/"
cc -O2 -g -Wall -o "$out/loopbench" lab/loopdev/loopbench.c -libverbs -lpthread
if [[ " $* " = *" provider "* ]]; then
  make provider >&2
  cp bin/libgodat.so "$out/"
fi
exec "$out/bench" --bin "$out" "${options[@]}" "$@"
