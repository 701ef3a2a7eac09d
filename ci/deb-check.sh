#!/usr/bin/env bash
# Installs the package of make deb in a plain Debian, runs what is in it, and removes it again. Wants root and debootstrap.
#
#   ci/deb-check.sh [DEB]        DEB: default the newest out/datperf_*.deb
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
deb=${1:-$(find out -name 'datperf_*.deb' -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d ' ' -f 2-)}
[ -f "$deb" ] || { echo "deb-check: there is no package: run make deb" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "deb-check: no debootstrap here (apt-get install debootstrap)" >&2; exit 1; }
root=$(mktemp -d)
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$root"' EXIT
chmod 755 "$root"

debootstrap --variant=minbase bookworm "$root" >/dev/null || { tail -n 5 "$root/debootstrap/debootstrap.log" >&2; exit 1; }
cp -L /etc/resolv.conf "$root/etc/"
mount -t proc proc "$root/proc"
install -m 644 "$deb" "$root/tmp/datperf.deb"
inside() { chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
inside apt-get install -y --no-install-recommends /tmp/datperf.deb >"$root/tmp/log" 2>&1 || { cat "$root/tmp/log" >&2; exit 1; }

inside datperf --version
inside datperf local --device mem0 -m lat,bw -n 1000
inside datperf doctor >/dev/null && { echo "deb-check: doctor finds RDMA in a chroot without devices"; exit 1; }
for file in usr/share/man/man1/datperf.1.gz usr/share/man/man1/datperf-mesh.1.gz usr/share/bash-completion/completions/datperf \
  usr/share/zsh/vendor-completions/_datperf usr/share/fish/vendor_completions.d/datperf.fish \
  usr/lib/systemd/system/datperf.service etc/default/datperf; do
  [ -s "$root/$file" ] || case $file in
    # Images without documentation leave it out (dpkg's path-exclude).
    usr/share/man/*) grep -rqs 'path-exclude' "$root/etc/dpkg/dpkg.cfg.d" ;;
    *) false ;;
  esac || { echo "deb-check: $file is not there"; exit 1; }
done
inside apt-get purge -y datperf >/dev/null 2>&1
left=$(inside find /usr /etc -name '*datperf*')
[ -z "$left" ] || { echo "deb-check: purge leaves $left"; exit 1; }
echo "deb-check: $deb installs, runs and goes"
