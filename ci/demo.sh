#!/usr/bin/env bash
# datperf in two processes over real verbs: this host's device if it has one, else rxe in the virtual machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
[ -x bin/datperf ] || { echo "demo: no bin/datperf: run make build" >&2; exit 1; }

if [ "${1:-}" != --inside ]; then
  if compgen -G '/sys/class/infiniband/*' >/dev/null && [ -e /dev/infiniband/rdma_cm ]; then
    exec "$here/demo.sh" --inside
  fi
  echo "demo: no RDMA device on this host: starting the virtual machine" >&2
  exec "$here/rxe-vm.sh" --timeout 300 -- "$here/demo.sh" --inside
fi
