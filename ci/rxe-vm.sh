#!/usr/bin/env bash
# Runs a command in a small virtual machine that has RDMA devices (soft-RoCE), on a host that has none.
#
#   ci/rxe-vm.sh [options] -- COMMAND [ARGUMENT...]
#   go test -exec ci/rxe-vm.sh ./...          (for packages in subfolders, give the absolute path of the script)
#
# The guest sees the host's files at the same paths, and COMMAND runs in the same working directory.
# The guest writes to a scratch layer over these files, which is removed afterwards. rxe0
# (10.98.0.1, fd98::1) and rxe1 (10.98.1.1, fd98:1::1) are up. Standard output and standard error
# are separate, and appear as they are written. The exit status is COMMAND's.
#
#   --out DIR       folder that the guest can write to, at the same path; COMMAND finds its name in GODAT_OUT
#   --timeout SEC   kill a guest that runs longer, with status 124 (default 1800)
#   --memory MIB    memory of the guest (default 2048)
#   --cpus N        processors of the guest (default 2)
#   --device KIND   rxe, or siw for soft-iWARP (devices siw0 and siw1; run ci/deps.sh siw before)
#   --join FOLDER/N a cable to another guest: N is 1 in one guest and 2 in the other, and FOLDER is the same. The cable is eth0,
#                   with rxe0, 10.98.0.N and fd98::N, and MTU 1500; there is no rxe1. Either guest may be started first
#   --memlock KIB   locked-memory limit of COMMAND (default unlimited); limits ordinary users, not root
#   --user NAME     run COMMAND as this user (default root)
#   --env NAME[=V]  pass a variable. Always passed: GO* (with GODAT_*), CGO_*, IBV_*, RDMAV_*, LANG, LC_*, TERM, TZ
#   --accel KIND    kvm or tcg (software emulation); default: kvm if a test shows that it works
#   --console       show the guest's kernel console on standard error
#
# Statuses of the script itself: 2 bad option, 124 time limit, 125 the guest did not start or died.
set -euo pipefail

self=rxe-vm
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=ci/vm/common.sh
. "$here/vm/common.sh"
options "$@"

kernel=$cache/linux/current
if ! [ -e "$kernel/vmlinux" ] || ! command -v qemu-system-x86_64 >/dev/null || ! command -v busybox >/dev/null; then
  die 125 "the virtual machine's parts are not here: run ci/deps.sh vm"
fi
kernel=$(readlink -f "$kernel")
if [ "$device" = siw ] && ! compgen -G "$kernel/lib/modules/*/extra/siw.ko" >/dev/null; then
  die 125 "the siw module is not built: run ci/deps.sh siw"
fi
scratch
initramfs "$kernel"

# QEMU. A microvm has neither firmware nor a PCI bus, which makes booting fast.
machine=(qemu-system-x86_64 -M microvm -nodefaults -no-user-config -display none -no-reboot
  -smp "$cpus" -m "${memory}M" -kernel "$kernel/vmlinux" -initrd "$initrd" -serial "file:$tmp/console")
append="console=ttyS0 panic=-1 mitigations=off"

# Finds out what a guest needs to boot on this host. The result is kept in the cache until the host
# reboots: "kvm" if KVM runs a guest (it may not, even if /dev/kvm can be opened), else "tcg KHZ".
# KHZ is the rate of the time stamp counter: on a busy host, a guest under software emulation cannot
# measure the rate itself, and hangs.
explore() {
  if [ -w /dev/kvm ]; then
    timeout -s KILL 8 "${machine[@]}" -accel kvm -cpu host -append "$append godat.probe" </dev/null >/dev/null 2>&1 || true
    if grep -q 'it boots' "$tmp/console"; then
      echo kvm
      return
    fi
  fi
  cc -O1 -o "$tmp/tsckhz" "$here/vm/tsckhz.c" && echo "tcg $("$tmp/tsckhz")" || echo tcg
}
known=$cache/accel-$(cat /proc/sys/kernel/random/boot_id)
if ! [ -s "$known" ]; then
  rm -f "$cache"/accel-* 2>/dev/null || true
  explore >"$tmp/accel" 2>/dev/null
  cp "$tmp/accel" "$known.$$" 2>/dev/null && mv "$known.$$" "$known" || known=$tmp/accel
fi
khz=''
read -r found khz <"$known" || true
[ "$accel" != auto ] || accel=$found
append+=" quiet loglevel=5"
if [ "$accel" = kvm ]; then
  machine+=(-accel kvm -cpu host)
else
  machine+=(-accel "tcg,thread=multi" -cpu max)
  append+=" tsc=reliable" # true: emulated processors share a counter; otherwise the clock has steps of 4 ms
  [ -z "$khz" ] || append+=" tsc_early_khz=$khz lpj=$((khz * 4))"
fi

share kernel_modules "$kernel/lib/modules"
if [ -n "$out" ]; then
  # shellcheck disable=SC2054
  machine+=(-fsdev "local,id=out,path=${out//,/,,},security_model=none,multidevs=remap" -device virtio-9p-device,fsdev=out,mount_tag=out)
fi
if [ -n "$join" ]; then
  rm -f "$join/$number"
  # shellcheck disable=SC2054
  machine+=(-netdev "dgram,id=cable,local.type=unix,local.path=$join/$number,remote.type=unix,remote.path=$join/$((3 - number))"
    -device "virtio-net-device,netdev=cable,mac=02:00:5e:98:01:0$number")
fi
# shellcheck disable=SC2054 # the commas are qemu's
machine+=(-append "$append"
  -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-device,fsdev=root,mount_tag=hostroot
  -fsdev "local,id=control,path=$control,security_model=none" -device virtio-9p-device,fsdev=control,mount_tag=control
  -device virtio-serial-device
  -chardev "file,id=stdout,path=$tmp/stdout" -device virtserialport,chardev=stdout,nr=1
  -chardev "file,id=stderr,path=$tmp/stderr" -device virtserialport,chardev=stderr,nr=2)

# If a boot does not reach guest.sh, boot again: COMMAND has not begun.
for attempt in 1 2 3; do
  boot "${machine[@]}"
  if [ -e "$control/started" ] || [ "$SECONDS" -ge "$timeout" ]; then break; fi
  say "boot $attempt did not come through: $(tail -n 1 "$tmp/console" | tr -d '\r')"
done
finish
