#!/usr/bin/env bash
# Installs the packages of make deb and make rpm in a plain Debian, runs their programs, and removes
# the packages again. Debian's rpm installs the rpm, without its dependencies. Needs root and
# debootstrap.
#
#   ci/package-check.sh [FILE...]        default: the newest out/datperf*.deb and out/datperf*.rpm
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
newest() { find out -name "datperf*.$1" -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d ' ' -f 2-; }
[ $# -gt 0 ] || set -- "$(newest deb)" "$(newest rpm)"
for package in "$@"; do
  [ -f "$package" ] || { echo "package-check: there is no package '$package': run make deb and make rpm" >&2; exit 1; }
done
command -v debootstrap >/dev/null || { echo "package-check: no debootstrap here (apt-get install debootstrap)" >&2; exit 1; }
root=$(mktemp -d)
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$root"' EXIT
chmod 755 "$root"

debootstrap --variant=minbase bookworm "$root" >/dev/null || { tail -n 5 "$root/debootstrap/debootstrap.log" >&2; exit 1; }
cp -L /etc/resolv.conf "$root/etc/"
mount -t proc proc "$root/proc"
inside() { chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
quietly() { inside "$@" >"$root/tmp/log" 2>&1 || { cat "$root/tmp/log" >&2; exit 1; }; }
fail() { echo "package-check: $*" >&2; exit 1; }

for package in "$@"; do
  form=${package##*.}
  install -m 644 "$package" "$root/tmp/datperf.$form"
  case $form in
    deb) zsh=usr/share/zsh/vendor-completions && quietly apt-get install -y --no-install-recommends /tmp/datperf.deb ;;
    rpm)
      zsh=usr/share/zsh/site-functions
      quietly apt-get install -y --no-install-recommends rpm
      quietly rpm --install --force-debian --nodeps /tmp/datperf.rpm
      quietly rpm --verify --nodeps datperf
      ;;
    *) fail "$package is neither a deb nor an rpm" ;;
  esac
  inside datperf --version
  inside datperf local --device mem0 -m lat,bw -n 1000
  inside datperf doctor >/dev/null && fail "doctor finds RDMA in a chroot without devices"
  for file in usr/share/man/man1/datperf.1.gz usr/share/man/man1/datperf-mesh.1.gz usr/share/bash-completion/completions/datperf \
    "$zsh/_datperf" usr/share/fish/vendor_completions.d/datperf.fish usr/lib/systemd/system/datperf.service \
    etc/default/datperf; do
    [ -s "$root/$file" ] || case $file in
      # Images without documentation do not install this file (dpkg's path-exclude).
      usr/share/man/*) grep -rqs 'path-exclude' "$root/etc/dpkg/dpkg.cfg.d" ;;
      *) false ;;
    esac || fail "$file is not there"
  done
  [ "$(stat -c %a "$root/etc/datperf")" = 700 ] || fail "others can read /etc/datperf"
  case $form in
    deb) quietly apt-get purge -y datperf ;;
    rpm) quietly rpm --erase --nodeps datperf ;;
  esac
  left=$(inside find /usr /etc -name '*datperf*')
  [ -z "$left" ] || fail "removal of $package leaves $left"
  echo "package-check: $package installs, runs and goes"
done
