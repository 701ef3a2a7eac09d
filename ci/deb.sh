#!/usr/bin/env bash
# Builds out/datperf_VERSION_ARCH.deb: datperf, its manual pages, shell completion and a systemd unit.
#
#   ci/deb.sh [BINARY]        BINARY: an existing datperf (default: build one, position-independent)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. ci/stage.sh
arch=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
mkdir "$root/DEBIAN"
stage "$root" /usr/share/zsh/vendor-completions "$@"
doc=$root/usr/share/doc/datperf
cat >"$doc/copyright" <<'END'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: godat
Source: https://github.com/godat/godat

Files: *
Copyright: The godat authors
License: none-yet
 There is no licence yet: the licence is the owner's to choose.
END
{
  printf 'datperf (%s) unstable; urgency=medium\n\n  * The changes are in CHANGELOG.md of the source.\n\n' "$version"
  printf ' -- The godat authors <godat@example.org>  %s\n' "$(git log -1 --format=%cD 2>/dev/null || date -R)"
} | gzip -9n >"$doc/changelog.gz"
cat >"$root/DEBIAN/prerm" <<'END'
#!/bin/sh
# The server stops before its program goes. An upgrade leaves it running until postinst restarts it.
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl --quiet disable --now datperf.service || true
fi
END
cat >"$root/DEBIAN/postinst" <<'END'
#!/bin/sh
# The service starts only if somebody enables it. After an upgrade a running one is restarted.
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
  systemctl --quiet daemon-reload || true
  systemctl --quiet try-restart datperf.service || true
fi
END
cat >"$root/DEBIAN/postrm" <<'END'
#!/bin/sh
set -e
if [ "$1" = purge ]; then
  rmdir --ignore-fail-on-non-empty /etc/datperf 2>/dev/null || true
fi
if [ -d /run/systemd/system ]; then
  systemctl --quiet daemon-reload || true
fi
END
chmod 755 "$root"/DEBIAN/{prerm,postinst,postrm}
echo /etc/default/datperf >"$root/DEBIAN/conffiles"
# The newest version of the C library that a symbol of the program asks for.
libc=$(objdump -T "$root/usr/bin/datperf" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1 | cut -d_ -f2)
cat >"$root/DEBIAN/control" <<END
Package: datperf
Version: $version
Architecture: $arch
Maintainer: The godat authors <godat@example.org>
Section: net
Priority: optional
Depends: libc6 (>= $libc)
Recommends: libibverbs1, librdmacm1, ibverbs-providers, rdma-core
Suggests: ethtool, iproute2, nftables
Installed-Size: $(du -sk "$root" | cut -f1)
Homepage: https://github.com/godat/godat
Description: measure an RDMA fabric: latency, bandwidth and message rate
 Sends, RDMA reads and writes and atomics between two hosts, with percentiles,
 limits, reports and comparison, and a doctor for what keeps RDMA from working.
END
deb=out/datperf_${version}_$arch.deb
dpkg-deb --root-owner-group --build "$root" "$deb" >/dev/null
echo "$deb"
