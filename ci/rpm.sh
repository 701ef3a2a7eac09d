#!/usr/bin/env bash
# Builds out/datperf-VERSION-1.ARCH.rpm, with the same files as the Debian package. Needs rpmbuild
# (Debian: apt-get install rpm).
#
#   ci/rpm.sh [BINARY]        BINARY: an existing datperf (default: build one, position-independent)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v rpmbuild >/dev/null || { echo "rpm: no rpmbuild here (Debian: apt-get install rpm; Fedora: rpm-build)" >&2; exit 1; }
. ci/stage.sh
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
chmod 755 "$top"
stage "$top/tree" /usr/share/zsh/site-functions "$@"
rpmbuild --quiet -bb --define "_topdir $top" --define "tree $top/tree" --define "version_ $version" \
  --define "date_ $(LC_ALL=C git log -1 --format=%cd --date=format:'%a %b %d %Y' 2>/dev/null || LC_ALL=C date '+%a %b %d %Y')" \
  --define "_rpmdir $PWD/out" --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" ci/rpm/datperf.spec
echo "out/datperf-$version-1.$(rpm --eval '%{_target_cpu}').rpm"
