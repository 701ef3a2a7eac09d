#!/usr/bin/env bash
# Measures rdmanet beside udat and TCP on the loop device, and beside rstream (rsockets) too on soft-RoCE in a virtual
# machine. Wants the machine to itself.
#
#   ci/rdmanet-bench.sh [rxe-vm|uml-vm]      default: rxe-vm
set -euo pipefail
cd "$(dirname "$0")/../rdmanet"
if [ "${1:-}" = --inside ]; then
  GODAT_TEST_DEVICE=rxe0 "$2" -test.run '^$' -test.bench . -test.benchtime 2s
  for size in 64 4096 65536; do
    rstream -b 10.98.0.1 -p $((7000 + size % 1000)) -S $size -C 2000 >/dev/null &
    server=$!
    sleep 1
    echo "rstream, latency, then bandwidth, $size bytes:"
    timeout 60 rstream -s 10.98.0.1 -p $((7000 + size % 1000)) -S $size -C 2000 || true
    kill $server 2>/dev/null || true
  done
  exit
fi
machine=${1:-rxe-vm}
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go test -c -tags nulldev -o "$bin/loop.test" .
go test -c -o "$bin/rxe.test" .
GODAT_TEST_DEVICE=loop0 "$bin/loop.test" -test.run '^$' -test.bench . -test.benchtime 2s -test.count 3
"../ci/$machine.sh" -- bash "$(pwd)/../ci/rdmanet-bench.sh" --inside "$bin/rxe.test"
