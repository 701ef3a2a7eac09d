#!/usr/bin/env bash
# Runs tests as Windows programs, in Wine: those of packages that need no verbs device.
#
#   ci/windows-tests.sh [PACKAGE [TEST FLAGS...]]
#
# Without PACKAGE it runs the tests of udat on mem0 and on tcp, of rdmanet on tcp, and of the
# fabrics. With PACKAGE, GODAT_TEST_DEVICE names the device. TEST FLAGS are those of a test program:
# -test.run NAME, for example.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ci/deps.sh build wine >&2
out=$PWD/out/windows
mkdir -p "$out"
export WINEPREFIX=$out/wine WINEDEBUG=-all GOOS=windows CGO_ENABLED=0

# Go takes random numbers from this library, which Wine 8 does not have.
library=$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll
if [ ! -e "$library" ]; then
  wineboot -i 2> /dev/null
  wineserver -w
  x86_64-w64-mingw32-gcc -shared -O2 -o "$library" -x c - -ladvapi32 << 'END'
#include <windows.h>
#include <ntsecapi.h>
__declspec(dllexport) BOOL WINAPI ProcessPrng(BYTE *to, SIZE_T n) { return RtlGenRandom(to, (ULONG)n); }
END
fi

run() {
  local package=$1
  shift
  go test -c -o "$out/test.exe" "$package"
  (cd "$package" && wine "$out/test.exe" -test.short -test.timeout 40m "$@")
}

if [ $# -gt 0 ]; then
  run "$@"
  exit
fi
unset GODAT_TEST_DEVICE
run ./udat/internal/softnic
run ./udat/internal/memfabric
run ./udat/internal/tcpfabric
run ./udat
export GODAT_TEST_DEVICE=tcp:127.0.0.1
run ./udat
run ./rdmanet
