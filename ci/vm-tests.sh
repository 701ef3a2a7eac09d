#!/usr/bin/env bash
# Runs the packages' tests on a real verbs device: this host's, if it has one, otherwise in the
# virtual machine, which boots once for all. GODAT_TEST_DEVICE names the device to the tests. If it
# is set and the device is missing, the tests fail.
#
#   ci/vm-tests.sh [options] [PACKAGE...]      default: ./...
#
#   --no-race       without the race detector
#   --vm            in the virtual machine, even if this host has a device (GODAT_TEST_DEVICE chooses among several)
#   --uml           in the User Mode Linux instead, whose kernel is newer (ci/deps.sh uml)
#   --device KIND   kind of device in the virtual machine: rxe (default) or siw
#   --timeout SEC   limit for the whole run (default 2400); each package gets half of it
#   --run REGEX     as in go test, for the packages that follow it
#   --skip REGEX, --short, -v   as in go test
set -euo pipefail

# Inside the guest: run each test binary of the list in its package's folder, and print results as
# go test does.
if [ "${1:-}" = --inside ]; then
  bin=$2 limit=$3
  shift 3
  failed=0
  while IFS=$'\t' read -r package dir binary run; do
    start=$(date +%s%N)
    status=0
    verbose=false
    for arg in "$@"; do [ "$arg" != -test.v ] || verbose=true; done
    cd "$dir"
    if $verbose; then
      "$bin/$binary" -test.timeout="${limit}s" -test.run="$run" "$@" || status=$?
    else
      "$bin/$binary" -test.timeout="${limit}s" -test.run="$run" "$@" >"$bin/$binary.log" 2>&1 || { status=$?; cat "$bin/$binary.log"; }
    fi
    took=$(($(date +%s%N) - start))
    seconds=$(printf '%d.%03d' $((took / 1000000000)) $((took / 1000000 % 1000)))
    if [ $status = 0 ]; then
      printf 'ok  \t%s\t%ss\n' "$package" "$seconds"
    else
      printf 'FAIL\t%s\t%ss (status %d)\n' "$package" "$seconds" $status
      failed=1
    fi
  done <"$bin/list"
  exit $failed
fi

here=$(cd "$(dirname "$0")" && pwd)
race=(-race) vm=false machine=rxe-vm kind=rxe timeout=2400 args=() run='' packages=() runs=()
while [ $# -gt 0 ]; do
  case $1 in
    --device | --timeout | --run | --skip) [ $# -gt 1 ] || { echo "vm-tests: $1 needs a value" >&2; exit 2; } ;;&
    --no-race) race=(); shift ;;
    --vm) vm=true; shift ;;
    --uml) vm=true machine=uml-vm; shift ;;
    --device) kind=$2; shift 2 ;;
    --timeout) timeout=$2; shift 2 ;;
    --skip) args+=("-test.skip=$2"); shift 2 ;;
    --run) run=$2; shift 2 ;;
    --short) args+=(-test.short); shift ;;
    -v) args+=(-test.v); shift ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    -*) echo "vm-tests: unknown option '$1' (--help lists them)" >&2; exit 2 ;;
    *) packages+=("$1") runs+=("$run"); shift ;;
  esac
done
[ ${#packages[@]} -gt 0 ] || packages=(./...) runs=("$run")

bin=$(mktemp -d "${TMPDIR:-/tmp}/godat-tests.XXXXXXXX")
trap 'rm -rf "$bin"' EXIT
for i in "${!packages[@]}"; do
  go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{"\t"}}{{.Dir}}{{end}}' "${packages[i]}" |
    while read -r line; do [ -z "$line" ] || printf '%s\t%s\n' "$line" "${runs[i]}"; done >>"$bin/packages"
done
n=0
while IFS=$'\t' read -r package dir run; do
  n=$((n + 1))
  # Do not use -trimpath: tests may look for their own source.
  go test -c "${race[@]}" -o "$bin/$n.test" "$package"
  printf '%s\t%s\t%s\t%s\n' "$package" "$dir" "$n.test" "$run" >>"$bin/list"
done <"$bin/packages"
[ $n -gt 0 ] || { echo "vm-tests: no tests in: ${packages[*]}" >&2; exit 1; }

device=${GODAT_TEST_DEVICE:-$(basename "$(compgen -G '/sys/class/infiniband/*' | sort | head -n 1)")}
if ! $vm && [ -n "$device" ] && [ -w /dev/infiniband/rdma_cm ]; then
  echo "vm-tests: $n test binaries on this host's $device" >&2
  GODAT_TEST_DEVICE=$device timeout "$timeout" bash "$0" --inside "$bin" $((timeout / 2)) "${args[@]}"
  exit
fi
echo "vm-tests: $n test binaries in $machine on ${kind}0" >&2
"$here/$machine.sh" --device "$kind" --timeout "$timeout" --memory 3072 --env "GODAT_TEST_DEVICE=${kind}0" -- \
  bash "$here/vm-tests.sh" --inside "$bin" $((timeout / 2)) "${args[@]}"
