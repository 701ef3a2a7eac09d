#!/usr/bin/env bash
# Sets up soft-RoCE on this host's own kernel, if the kernel has the module rdma_rxe.
#
#   ci/rxe-setup.sh [NETDEV]            create rxe0 on NETDEV (default: the netdev of the default route)
#   ci/rxe-setup.sh --remove [NETDEV]   remove rxe0, or whatever rxe device is on NETDEV
#
# Needs root or sudo, rdma (iproute2) and modprobe (kmod). If the kernel has no rxe, use
# ci/rxe-vm.sh.
set -euo pipefail

say() { printf 'rxe-setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else die "need root to run: $*"; fi
}
device_on() { rdma link show | sed -n "s|^link \([^/ ]*\)/.* netdev $1 *\$|\1|p" | head -n 1; }

export PATH=$PATH:/usr/sbin:/sbin
remove=false
case ${1:-} in
  -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
  --remove) remove=true; shift ;;
  -*) say "unknown option '$1' (--help explains)"; exit 2 ;;
esac
[ $# -le 1 ] || { say "one netdev at most, not: $*"; exit 2; }
netdev=${1:-}
for tool in rdma ip; do
  command -v $tool >/dev/null || die "no $tool here: install iproute2 (ci/deps.sh vm does)"
done

if $remove; then
  device=rxe0
  [ -z "$netdev" ] || device=$(device_on "$netdev")
  if [ -z "$device" ] || ! rdma link show "$device/1" >/dev/null 2>&1; then
    say "nothing to remove: no RDMA device ${device:-on $netdev}"
    exit 0
  fi
  as_root rdma link delete "$device" || die "could not remove $device"
  echo "removed $device"
  exit 0
fi

if ! [ -d /sys/module/rdma_rxe ] && ! as_root modprobe -q rdma_rxe 2>/dev/null; then
  say "this kernel ($(uname -r)) has no rdma_rxe module, so there can be no soft-RoCE on this host."
  die "Run in the virtual machine instead: ci/rxe-vm.sh -- ibv_devinfo"
fi
as_root modprobe -q rdma_ucm || say "no rdma_ucm module: connections by rdma_cm will not work"

if [ -z "$netdev" ]; then
  netdev=$(ip -o route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)
  [ -n "$netdev" ] || netdev=$(ip -o -6 route show default | sed -n 's/.* dev \([^ ]*\).*/\1/p' | head -n 1)
  [ -n "$netdev" ] || die "no default route to take the netdev from: name one"
fi
ip link show dev "$netdev" >/dev/null 2>&1 || die "no netdev '$netdev' on this host"

device=$(device_on "$netdev")
if [ -z "$device" ]; then
  device=rxe0
  as_root rdma link add "$device" type rxe netdev "$netdev" || die "could not add $device on $netdev (dmesg may say why)"
fi
echo "$device on $netdev: $(ip -o addr show dev "$netdev" scope global | awk '{ sub("/.*", "", $4); printf "%s%s", (NR > 1 ? ", " : ""), $4 }')"
