#!/usr/bin/env bash
# Builds out/datperf_VERSION_ARCH.deb: datperf, its manual pages, shell completion and a systemd unit.
#
#   ci/deb.sh [BINARY]        BINARY: a datperf that is built already (default bin/datperf)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
binary=${1:-bin/datperf}
arch=$(dpkg --print-architecture)
version=0.0.0
if commit=$(git log -1 --format=%cd.%h --date=format:%Y%m%d.%H%M 2>/dev/null); then
  version=0.0.0+git$commit
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
bash=$root/usr/share/bash-completion/completions zsh=$root/usr/share/zsh/vendor-completions
fish=$root/usr/share/fish/vendor_completions.d man=$root/usr/share/man/man1
mkdir -p "$root"/{DEBIAN,etc/default,usr/bin,usr/lib/systemd/system,usr/share/doc/datperf} "$bash" "$zsh" "$fish" "$man"

install -m 755 "$binary" "$root/usr/bin/datperf"
strip "$root/usr/bin/datperf"
"$binary" man "$man" && gzip -9n "$man"/*.1
"$binary" completion bash >"$bash/datperf"
"$binary" completion zsh >"$zsh/_datperf"
"$binary" completion fish >"$fish/datperf.fish"
install -m 644 ci/deb/datperf.service "$root/usr/lib/systemd/system/"
install -m 644 docs/datperf.md "$root/usr/share/doc/datperf/"
cat >"$root/etc/default/datperf" <<'END'
# Flags of datperf server, see datperf-server(1):
#DATPERF_FLAGS="--bind 10.0.0.1 --secret /etc/datperf.secret --prometheus :9101"
END
echo /etc/default/datperf >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/control" <<END
Package: datperf
Version: $version
Architecture: $arch
Maintainer: The godat authors <godat@localhost>
Section: net
Priority: optional
Depends: libc6, libibverbs1, librdmacm1
Recommends: ibverbs-providers, rdma-core
Suggests: ethtool, iproute2, nftables
Installed-Size: $(du -sk "$root" | cut -f1)
Homepage: https://github.com/godat/godat
Description: measure an RDMA fabric: latency, bandwidth and message rate
 Sends, RDMA reads and writes and atomics between two hosts, with percentiles,
 limits, reports and comparison, and a doctor for what keeps RDMA from working.
END
mkdir -p out
deb=out/datperf_${version}_$arch.deb
dpkg-deb --root-owner-group --build "$root" "$deb" >/dev/null
echo "$deb"
