#!/usr/bin/env bash
# Packs the guest's initramfs: busybox, init, and the kernel's modules, if it has any, in the order
# in which to load them.
#   ci/vm/mkinitrd.sh KERNEL-DIRECTORY OUTPUT
set -euo pipefail
kernel=$1 out=$2
version=$(basename "$(readlink -f "$kernel")")
here=$(cd "$(dirname "$0")" && pwd)
# rxe needs a crc32 driver, but its dependencies do not name one.
modules=(virtio_mmio virtio_console 9pnet_virtio 9p overlay crc32_generic crc32-pclmul
  dummy ib_uverbs rdma_ucm ib_umad rdma_rxe)

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{bin,lib,proc,dev,lower,scratch,root}
cp "$(command -v busybox)" "$tree/bin/busybox"
cp "$here/init" "$tree/init"
chmod 755 "$tree/init"
[ -d "$kernel/lib/modules" ] || modules=()
for module in "${modules[@]}"; do
  /sbin/modprobe -d "$kernel" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
  cp "$file" "$tree/lib/"
  echo "/lib/${file##*/}"
done >"$tree/modules.order"
(cd "$tree" && find . | cpio --quiet -o -H newc -R 0:0) >"$out.part.$$"
mv "$out.part.$$" "$out"
