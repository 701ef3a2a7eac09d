#!/usr/bin/env bash
# Runs a command in a small virtual machine that has RDMA devices (soft-RoCE), on a host that has none.
#
#   ci/rxe-vm.sh [options] -- COMMAND [ARGUMENT...]
#   go test -exec ci/rxe-vm.sh ./...          (the absolute path of the script, for packages in folders)
#
# The guest sees the host's files, read-only under a scratch layer that is gone afterwards, at the same
# paths and in the same working directory. rxe0 (10.98.0.1, fd98::1) and rxe1 (10.98.1.1, fd98:1::1) are up.
# Output, standard output and error apart, comes as it is written; the exit status is COMMAND's.
#
#   --out DIR       folder that the guest can write to, at the same path; named to COMMAND in GODAT_OUT
#   --timeout SEC   end a guest that runs longer, with status 124 (default 1800)
#   --memory MIB    (default 2048)
#   --cpus N        (default 2)
#   --device KIND   rxe, or siw: soft-iWARP, after ci/deps.sh siw (devices siw0 and siw1)
#   --memlock KIB   locked-memory limit of COMMAND (default unlimited); binds ordinary users, not root
#   --user NAME     run COMMAND as this user (default root)
#   --env NAME[=V]  pass a variable. Passed anyway: GO* (GODAT_* too), CGO_*, IBV_*, RDMAV_*, LANG, LC_*, TERM, TZ
#   --accel KIND    kvm or tcg (software emulation); default: kvm where it was seen to work
#   --console       show the guest's kernel console on standard error
#
# Statuses of its own: 2 bad option, 124 time limit, 125 the guest did not start or died.
set -euo pipefail

self=rxe-vm
say() { printf '%s: %s\n' "$self" "$*" >&2; }
die() { local status=$1; shift; say "$*"; exit "$status"; }
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; }
number() { [[ $2 =~ ^[0-9]+$ && $2 -gt 0 ]] || die 2 "$1 needs a positive number, not '$2'"; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${GODAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/godat}
out='' timeout=1800 memory=2048 cpus=2 device=rxe memlock=unlimited user='' accel=auto console=false pass=()
while [ $# -gt 0 ]; do
  case $1 in
    --out | --timeout | --memory | --cpus | --device | --memlock | --user | --env | --accel)
      [ $# -gt 1 ] || die 2 "$1 needs a value" ;;&
    --out) out=$2; shift 2 ;;
    --timeout) number "$1" "$2"; timeout=$2; shift 2 ;;
    --memory) number "$1" "$2"; memory=$2; shift 2 ;;
    --cpus) number "$1" "$2"; cpus=$2; shift 2 ;;
    --device) device=$2; shift 2 ;;
    --memlock) [ "$2" = unlimited ] || number "$1" "$2"; memlock=$2; shift 2 ;;
    --user) user=$2; shift 2 ;;
    --env) pass+=("$2"); shift 2 ;;
    --accel) accel=$2; shift 2 ;;
    --console) console=true; shift ;;
    -h | --help) usage; exit 0 ;;
    --) shift; break ;;
    -*) die 2 "unknown option '$1' (--help lists them)" ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || die 2 "no command given (--help explains)"
case $device in rxe | siw) ;; *) die 2 "--device is rxe or siw, not '$device'" ;; esac
case $accel in auto | kvm | tcg) ;; *) die 2 "--accel is kvm or tcg, not '$accel'" ;; esac
[ -z "$user" ] || id -u -- "$user" >/dev/null 2>&1 || die 2 "--user: no user '$user' on this host"

kernel=$cache/linux/current
if ! [ -e "$kernel/vmlinux" ] || ! command -v qemu-system-x86_64 >/dev/null || ! command -v busybox >/dev/null; then
  die 125 "the virtual machine's parts are not here: run ci/deps.sh vm"
fi
kernel=$(readlink -f "$kernel")
if [ "$device" = siw ] && ! compgen -G "$kernel/lib/modules/*/extra/siw.ko" >/dev/null; then
  die 125 "the siw module is not built: run ci/deps.sh siw"
fi
sum=$(cat "$here/vm/init" "$here/vm/mkinitrd.sh" | cksum)
initrd=$kernel/initrd-${sum%% *}

tmp=$(mktemp -d "${TMPDIR:-/tmp}/godat-vm.XXXXXXXX")
vm=''
# shellcheck disable=SC2317 # called by the trap
cleanup() {
  trap '' INT TERM QUIT HUP
  [ -z "$vm" ] || kill -TERM "$vm" 2>/dev/null || true
  rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT QUIT
trap 'exit 143' TERM HUP

if ! [ -e "$initrd" ]; then
  [ -w "$kernel" ] || initrd=$tmp/initrd
  "$here/vm/mkinitrd.sh" "$kernel" "$initrd" || die 125 "could not make the initramfs"
fi

# QEMU. A microvm has no firmware to go through and no PCI bus to look at.
machine=(qemu-system-x86_64 -M microvm -nodefaults -no-user-config -display none -no-reboot
  -smp "$cpus" -m "${memory}M" -kernel "$kernel/vmlinux" -initrd "$initrd" -serial "file:$tmp/console")
append="console=ttyS0 panic=-1 mitigations=off"

# What boots on this host need to know, found out once per boot of the host and kept in the cache:
# "kvm" where KVM runs a guest (/dev/kvm may open and still not), else "tcg KHZ". KHZ is the rate of the time stamp
# counter: a guest under software emulation that has to measure it on a busy host fails to, and then hangs.
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
  append+=" tsc=reliable" # the emulated processors share one counter; without it the clock goes in steps of 4 ms
  [ -z "$khz" ] || append+=" tsc_early_khz=$khz lpj=$((khz * 4))"
fi

# What the guest is to do, on the control share.
control=$tmp/control
mkdir "$control"
cp "$here/vm/guest.sh" "$control/guest.sh"
if [ -n "$out" ]; then
  mkdir -p "$out"
  out=$(cd "$out" && pwd)
  # shellcheck disable=SC2054
  machine+=(-fsdev "local,id=out,path=${out//,/,,},security_model=none,multidevs=remap" -device virtio-9p-device,fsdev=out,mount_tag=out)
fi
printf '%s=%q\n' device "$device" memlock "$memlock" kernel_modules "$kernel/lib/modules" out "$out" epoch "$(date +%s)" >"$control/config"

variables=("PATH=$PATH" "HOME=$HOME" "USER=root" GODAT_VM=1)
prefix=()
if [ -n "$user" ]; then
  home=$(getent passwd "$user" | cut -d: -f6)
  variables+=("HOME=$home" "USER=$user")
  prefix=(setpriv "--reuid=$user" "--regid=$(id -g -- "$user")" --init-groups --)
fi
for name in $(compgen -e); do
  case $name in
    GODAT_VM | GODAT_OUT) ;;
    GO* | CGO_* | IBV_* | RDMAV_* | LANG | LC_* | TERM | TZ) variables+=("$name=${!name}") ;;
  esac
done
for name in "${pass[@]}"; do
  case $name in
    *=*) variables+=("$name") ;;
    *) [ -z "${!name+set}" ] || variables+=("$name=${!name}") ;;
  esac
done
[ -z "$out" ] || variables+=("GODAT_OUT=$out")
{
  printf 'cd -- %q || exit 126\nexec env -i' "$PWD"
  printf ' %q' "${variables[@]}" "${prefix[@]}" "$@"
  printf '\n'
} >"$control/command"

# Files that a Go test binary is told to write: brought back to where go test expects them.
outputdir=$PWD collect=()
for arg in "$@"; do
  case $arg in -test.outputdir=* | --test.outputdir=*) outputdir=${arg#*=} ;; esac
done
for arg in "$@"; do
  case ${arg/#--/-} in
    -test.testlogfile=?* | -test.coverprofile=?* | -test.cpuprofile=?* | -test.memprofile=?* | -test.blockprofile=?* | \
      -test.mutexprofile=?* | -test.trace=?* | -test.gocoverdir=?*)
      path=${arg#*=}
      [[ $path == /* ]] || path=$outputdir/$path
      collect+=("$path") ;;
  esac
done
[ -z "${GOCOVERDIR:-}" ] || collect+=("$(realpath -m "$GOCOVERDIR")")
printf '%s\n' "${collect[@]}" >"$control/collect"
[ ${#collect[@]} -gt 0 ] || : >"$control/collect"

mkfifo "$tmp/stdout" "$tmp/stderr"
: >"$tmp/console"
if $console; then tail -f --pid=$$ "$tmp/console" >&2 & fi

# shellcheck disable=SC2054 # the commas are qemu's
machine+=(-append "$append"
  -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-device,fsdev=root,mount_tag=hostroot
  -fsdev "local,id=control,path=$control,security_model=none" -device virtio-9p-device,fsdev=control,mount_tag=control
  -device virtio-serial-device
  -chardev "file,id=stdout,path=$tmp/stdout" -device virtserialport,chardev=stdout,nr=1
  -chardev "file,id=stderr,path=$tmp/stderr" -device virtserialport,chardev=stderr,nr=2)

# A boot that does not reach guest.sh is tried again: nothing of COMMAND has run yet.
for attempt in 1 2 3; do
  cat <"$tmp/stdout" &
  cats=$!
  cat <"$tmp/stderr" >&2 &
  cats="$cats $!"
  # setpriv: no guest outlives this script, even when the script is killed.
  setpriv --pdeathsig TERM -- timeout -k 2 "$timeout" setpriv --pdeathsig KILL -- "${machine[@]}" </dev/null >"$tmp/qemu" 2>&1 &
  vm=$!
  begun=$SECONDS
  until [ -e "$control/started" ] || ! kill -0 "$vm" 2>/dev/null || [ $((SECONDS - begun)) -ge 60 ]; do sleep 0.1; done
  [ -e "$control/started" ] || kill -TERM "$vm" 2>/dev/null || true
  ended=0
  wait "$vm" || ended=$?
  vm=''
  # shellcheck disable=SC2086
  wait $cats || true
  if [ -e "$control/started" ] || [ "$SECONDS" -ge "$timeout" ]; then break; fi
  say "boot $attempt did not come through: $(tail -n 1 "$tmp/console" | tr -d '\r')"
done

if [ -s "$control/status" ]; then
  for i in "${!collect[@]}"; do
    from=$control/collected.$((i + 1)) to=${collect[i]}
    if [ -d "$from" ]; then
      mkdir -p "$to" && cp -R "$from/." "$to/"
    elif [ -e "$from" ]; then
      cp "$from" "$to"
    fi
  done
  grep -E 'Out of memory|BUG:|WARNING:|Oops|general protection' "$tmp/console" | sed "s/^/$self: the guest's kernel: /" >&2 || true
  exit "$(cat "$control/status")"
fi
if [ "$SECONDS" -ge "$timeout" ]; then
  say "no end after $timeout s (--timeout): the guest was stopped"
  grep -v 'PCI: Fatal' "$tmp/console" | tail -n 20 >&2 || true
  exit 124
fi
say "the guest died without a result (qemu: status $ended). Last words of qemu and of the guest's kernel:"
tail -n 40 "$tmp/qemu" "$tmp/console" >&2 || true
exit 125
