#!/usr/bin/env bash
# Runs a command with the loop device (loop0), a verbs device in memory. The device is a library that is loaded before
# libibverbs and librdmacm.
#
#   lab/loopdev/loop.sh COMMAND [ARGUMENT...]     for example ibv_devinfo, or bin/datperf local --device loop0
#   go test -exec "$PWD/lab/loopdev/loop.sh" ./udat
#   lab/loopdev/loop.sh [--asan]                  only builds the library and prints what LD_PRELOAD must be
#
# GODAT_LOOP_SCRIPT=FILE loads script.c before the device: calls fail and events change their order as FILE says.
# COMMAND runs with GODAT_TEST_DEVICE=loop0. If COMMAND was built with AddressSanitizer, it gets a library that was
# built with AddressSanitizer, too. The script builds the libraries in bin, and builds them again when a source is
# newer.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$(cd "$here/../.." && pwd)/bin

library() { # NAME ARGUMENT..., of the compiler
  local file=$bin/$1 source
  shift
  for source in "$here"/loop.sh "$here"/*.[ch] "$here"/../../cverbs/{abi,libcalls}.h; do
    [ "$source" -nt "$file" ] || continue
    mkdir -p "$bin"
    "${CC:-cc}" -O2 -g -Wall -fPIC -shared -ftls-model=initial-exec -o "$file.$$" "$@" || { kill $$; exit 1; }
    mv "$file.$$" "$file" # replaces the file at once, because others may have it open
    break
  done
  echo "$file"
}

device=("$here/loopdev.c" "$here/loopcm.c" "-Wl,--no-as-needed" -libverbs -lrdmacm)
script() { library libscript.so "$here/script.c"; }
plain() { echo "${GODAT_LOOP_SCRIPT:+$(script) }$(library libloop.so "${device[@]}")"; }
sanitized() { # AddressSanitizer wants its own library to be the first
  echo "$("${CC:-cc}" -print-file-name=libasan.so) $(library libloop-asan.so -fsanitize=address "${device[@]}")"
}

case ${1:-} in
  '') plain; exit ;;
  --asan) sanitized; exit ;;
  -*) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac
if grep -q __asan_init "$(command -v "$1")"; then
  LD_PRELOAD=$(sanitized)
else
  script >/dev/null # tests load it into a further process
  LD_PRELOAD=$(plain)
fi
export LD_PRELOAD GODAT_TEST_DEVICE=loop0
exec "$@"
