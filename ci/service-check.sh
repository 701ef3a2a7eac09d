#!/usr/bin/env bash
# Installs the package of make deb in a plain Debian with systemd, boots that Debian as a container,
# and measures with the service over tcp, with a secret that only root can read. Removing the
# package must stop the service. Needs root, debootstrap and systemd-nspawn.
#
#   ci/service-check.sh [DEB]        DEB: default the newest out/datperf_*.deb
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
deb=${1:-$(find out -name 'datperf_*.deb' -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d ' ' -f 2-)}
fail() { echo "service-check: $*" >&2; exit 1; }
[ -f "$deb" ] || fail "there is no package: run make deb"
for program in debootstrap systemd-nspawn; do
  command -v "$program" >/dev/null || fail "no $program here (apt-get install debootstrap systemd-container)"
done
root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
chmod 755 "$root"
debootstrap --variant=minbase --include=systemd,systemd-sysv bookworm "$root" >/dev/null || fail "debootstrap"
cp "$deb" "$root/root/datperf.deb"
chroot "$root" dpkg -i /root/datperf.deb >/dev/null
(umask 077 && od -An -v -tx1 -N 32 /dev/urandom | tr -d ' \n' >"$root/etc/datperf/secret")
cat >"$root/etc/default/datperf" <<'END'
DATPERF_FLAGS="--device tcp --allow-mesh --secret /run/credentials/datperf.service/datperf_secret"
END
cat >"$root/root/check" <<'END'
exec >/root/log 2>&1
secret="--secret /etc/datperf/secret"
for _ in $(seq 100); do datperf client 127.0.0.1 --device tcp $secret -n 100 && echo "it measures" && break; sleep 0.2; done
datperf client 127.0.0.1 --device tcp -n 100 || echo "it wants the secret"
server=$(systemctl show --property MainPID --value datperf)
grep -E '^(Uid|CapBnd|Seccomp):' "/proc/$server/status"
grep '^Max locked memory' "/proc/$server/limits"
dpkg --purge datperf
[ -e "/proc/$server" ] || echo "it is stopped"
END
cat >"$root/etc/systemd/system/check.service" <<'END'
[Unit]
After=datperf.service
[Service]
Type=oneshot
ExecStart=/bin/bash /root/check
ExecStopPost=systemctl poweroff
END
for unit in /usr/lib/systemd/system/datperf.service /etc/systemd/system/check.service; do
  ln -s "$unit" "$root/etc/systemd/system/multi-user.target.wants/"
done
timeout 180 systemd-nspawn --quiet -D "$root" --boot --private-network --register=no --keep-unit --link-journal=no \
  </dev/null >"$root/root/boot.log" 2>&1 || { tail -n 20 "$root/root/boot.log"; fail "the container does not boot or end"; }
for line in "it measures" "it wants the secret" "it is stopped" $'CapBnd:\t0000000000000000' $'Seccomp:\t2'; do
  grep -qx "$line" "$root/root/log" || { cat "$root/root/log"; fail "the log lacks '$line'"; }
done
! grep -q $'^Uid:\t0\t' "$root/root/log" || fail "the service runs as root"
echo "service-check: the service of $deb measures with its secret, without privileges, and goes with the package"
