#!/usr/bin/env bash
# Runs a command in a User Mode Linux that has RDMA devices (soft-RoCE), on a host that has none.
# Programs run on the host's processors at native speed. Their system calls and page faults are slow
# (5 and 13 us). Use it to measure. To test, use ci/rxe-vm.sh, whose kernel is older.
#
#   ci/uml-vm.sh [options] -- COMMAND [ARGUMENT...]
#
# The guest sees the host's files at the same paths, and COMMAND runs in the same working directory.
# The guest writes to a scratch layer over these files, which is removed afterwards. rxe0
# (10.98.0.1, fd98::1) and rxe1 (10.98.1.1, fd98:1::1) are up. Standard output and standard error
# are separate, and appear as they are written. The exit status is COMMAND's. The options are the
# same as for ci/rxe-vm.sh, but --accel is ignored, and --device siw needs nothing more to be built.
#
# The guest's processor N runs on processor N of this host. A system call of the guest switches
# between two processes of the host, which takes 5 us on one processor and 60 us across two.
#
# Statuses of the script itself: 2 bad option, 124 time limit, 125 the guest did not start or died.
set -euo pipefail

self=uml-vm
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=ci/vm/common.sh
. "$here/vm/common.sh"
options "$@"

kernel=$cache/uml-$(cat "$here/../lab/uml/config" "$here/../lab/uml/vdso-clock.patch" | cksum | cut -d ' ' -f 1)
if ! [ -x "$kernel/linux" ] || ! command -v busybox >/dev/null; then
  die 125 "the User Mode Linux is not built: run ci/deps.sh uml"
fi
scratch
initramfs "$kernel"
mhz=$(sed -n 's/^cpu MHz[^:]*: //p' /proc/cpuinfo | head -n 1)
share mhz "${mhz:-1000}"

# The guest's memory is a file, in /dev/shm if there is room.
memory_folder=$tmp
if [ "$(df --output=avail -B 1M /dev/shm 2>/dev/null | tail -n 1)" -gt "$memory" ] 2>/dev/null; then memory_folder=/dev/shm; fi

# shellcheck disable=SC2317 # called by boot
pin() { # PID of timeout(1)
  local linux='' i=0 task
  for _ in $(seq 500); do
    linux=$(pgrep -P "$1" | head -n 1 || true)
    [ -z "$linux" ] || [ "$(find "/proc/$linux/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -lt "$cpus" ] || break
    sleep 0.01
  done
  [ -n "$linux" ] || return 0
  for task in $(cd "/proc/$linux/task" && printf '%s\n' * | sort -n | head -n "$cpus"); do
    taskset -cp $((i % $(nproc))) "$task" >/dev/null || true
    i=$((i + 1))
  done
}
[ "$cpus" = 1 ] || after_start=pin

# shellcheck disable=SC2016 # the inner shell expands it
boot env TMPDIR="$memory_folder" bash -c 'exec "$@" 3>"$0/console" 4>"$0/stdout" 5>"$0/stderr"' "$tmp" "$kernel/linux" \
  mem="${memory}M" ncpus="$cpus" seccomp=on initrd="$initrd" \
  con=null con0=null,fd:3 ssl=null ssl0=null,fd:4 ssl1=null,fd:5 console=tty0 quiet loglevel=5 panic=-1 \
  umid="godat$$" uml_dir="$tmp/" godat.control="$control"
finish
