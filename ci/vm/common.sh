# shellcheck shell=bash disable=SC2034,SC2154 # variables of the scripts that source this
# The common part of ci/rxe-vm.sh and ci/uml-vm.sh: the options, the control share, and the end.
# They set self and here, and then source this file.

say() { printf '%s: %s\n' "$self" "$*" >&2; }
die() { local status=$1; shift; say "$*"; exit "$status"; }
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; }
number() { [[ $2 =~ ^[0-9]+$ && $2 -gt 0 ]] || die 2 "$1 needs a positive number, not '$2'"; }

cache=${GODAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/godat}
out='' timeout=1800 memory=2048 cpus=2 device=rxe memlock=unlimited user='' join='' number='' accel=auto console=false pass=() command=()

options() { # the command line of the script
  while [ $# -gt 0 ]; do
    case $1 in
      --out | --timeout | --memory | --cpus | --device | --memlock | --user | --join | --env | --accel)
        [ $# -gt 1 ] || die 2 "$1 needs a value" ;;&
      --out) out=$2; shift 2 ;;
      --timeout) number "$1" "$2"; timeout=$2; shift 2 ;;
      --memory) number "$1" "$2"; memory=$2; shift 2 ;;
      --cpus) number "$1" "$2"; cpus=$2; shift 2 ;;
      --device) device=$2; shift 2 ;;
      --memlock) [ "$2" = unlimited ] || number "$1" "$2"; memlock=$2; shift 2 ;;
      --user) user=$2; shift 2 ;;
      --join) join=${2%/*} number=${2##*/}; shift 2 ;;
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
  if [ -n "$join" ]; then
    case $number in 1 | 2) ;; *) die 2 "--join needs FOLDER/1 or FOLDER/2, not '$join/$number'" ;; esac
    [ "$self" = rxe-vm ] || die 2 "--join is not an option of $self"
    mkdir -p "$join"
    join=$(cd "$join" && pwd)
  fi
  [ -z "$user" ] || id -u -- "$user" >/dev/null 2>&1 || die 2 "--user: no user '$user' on this host"
  command=("$@")
}

# Creates the folder of this run, and removes it at the end. If vm is set, it is a process to kill
# first.
vm=''
# shellcheck disable=SC2317 # called by the trap
cleanup() {
  trap '' INT TERM QUIT HUP
  [ -z "$vm" ] || kill -TERM "$vm" 2>/dev/null || true
  rm -rf "$tmp"
}
scratch() {
  tmp=$(mktemp -d "${TMPDIR:-/tmp}/godat-vm.XXXXXXXX")
  trap cleanup EXIT
  trap 'exit 130' INT QUIT
  trap 'exit 143' TERM HUP
}

initramfs() { # KERNEL-DIRECTORY: sets initrd
  local sum
  sum=$(cat "$here/vm/init" "$here/vm/mkinitrd.sh" | cksum)
  initrd=$1/initrd-${sum%% *}
  [ ! -e "$initrd" ] || return 0
  [ -w "$1" ] || initrd=$tmp/initrd
  "$here/vm/mkinitrd.sh" "$1" "$initrd" || die 125 "could not make the initramfs"
}

# Writes what the guest must do to the control share. NAME VALUE... are further settings of
# guest.sh.
share() {
  local variables prefix home name arg path outputdir
  control=$tmp/control
  mkdir "$control"
  cp "$here/vm/guest.sh" "$control/guest.sh"
  if [ -n "$out" ]; then
    mkdir -p "$out"
    out=$(cd "$out" && pwd)
  fi
  printf '%s=%q\n' self "$self" device "$device" join "$number" memlock "$memlock" out "$out" epoch "$(date +%s)" "$@" >"$control/config"

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
    printf ' %q' "${variables[@]}" "${prefix[@]}" "${command[@]}"
    printf '\n'
  } >"$control/command"

  # If COMMAND is a Go test binary: bring the files that it writes back to where go test expects
  # them.
  outputdir=$PWD collect=()
  for arg in "${command[@]}"; do
    case $arg in -test.outputdir=* | --test.outputdir=*) outputdir=${arg#*=} ;; esac
  done
  for arg in "${command[@]}"; do
    case ${arg/#--/-} in
      -test.testlogfile=?* | -test.coverprofile=?* | -test.cpuprofile=?* | -test.memprofile=?* | -test.blockprofile=?* | \
        -test.mutexprofile=?* | -test.trace=?* | -test.gocoverdir=?*)
        path=${arg#*=}
        [[ $path == /* ]] || path=$outputdir/$path
        collect+=("$path") ;;
    esac
  done
  [ -z "${GOCOVERDIR:-}" ] || collect+=("$(realpath -m "$GOCOVERDIR")")
  : >"$control/collect"
  [ ${#collect[@]} = 0 ] || printf '%s\n' "${collect[@]}" >"$control/collect"

  mkfifo "$tmp/stdout" "$tmp/stderr"
  : >"$tmp/console"
  if $console; then tail -f --pid=$$ "$tmp/console" >&2 & fi
}

# boot COMMAND... starts the machine with its output in $tmp/machine, shows the guest's output, and
# waits until the machine ends. No guest outlives this script, even if the script is killed. If
# after_start is set, it is called with the PID of timeout(1).
after_start=:
boot() {
  local cats begun
  cat <"$tmp/stdout" &
  cats=$!
  cat <"$tmp/stderr" >&2 &
  cats="$cats $!"
  setpriv --pdeathsig TERM -- timeout -k 2 "$timeout" setpriv --pdeathsig KILL -- "$@" </dev/null >"$tmp/machine" 2>&1 &
  vm=$!
  $after_start "$vm"
  begun=$SECONDS
  until [ -e "$control/started" ] || ! kill -0 "$vm" 2>/dev/null || [ $((SECONDS - begun)) -ge 60 ]; do sleep 0.1; done
  [ -e "$control/started" ] || kill -TERM "$vm" 2>/dev/null || true
  ended=0
  wait "$vm" || ended=$?
  vm=''
  # shellcheck disable=SC2086
  wait $cats || true
}

finish() {
  local i from to
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
  say "the guest died without a result (status $ended). Last words of the machine and of the guest's kernel:"
  tail -n 40 "$tmp/machine" "$tmp/console" >&2 || true
  exit 125
}
