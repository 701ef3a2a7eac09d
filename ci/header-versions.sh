#!/usr/bin/env bash
# Builds and vets cverbs and the packages that import it, with the headers of other versions of
# rdma-core. Each FOLDER contains infiniband/verbs.h and rdma/rdma_cma.h. Prints a line for each
# FOLDER. The status is 1 if one failed.
#
#   ci/header-versions.sh FOLDER...
#
# To get such headers, unpack Debian's packages of another version: dpkg -x
# libibverbs-dev_VERSION_ARCH.deb DIR, and the same for librdmacm-dev. FOLDER is then
# DIR/usr/include.
set -uo pipefail

[ $# -gt 0 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2; }
for folder in "$@"; do [ -d "$folder" ] || { echo "header-versions: no folder $folder" >&2; exit 2; }; done
failed=0
for folder in "$@"; do
  folder=$(cd "$folder" && pwd)
  flags="${CGO_CFLAGS:--O2} -I$folder"
  used=$(printf '#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n' | ${CC:-cc} "-I$folder" -M -xc - | tr -s '[:space:]' '\n')
  ok=true
  for header in infiniband/verbs.h rdma/rdma_cma.h; do
    grep -qx "$folder/$header" <<<"$used" || { echo "$folder: has no $header" >&2; ok=false; }
  done
  if $ok && (cd "$(dirname "$0")/.." && CGO_CFLAGS=$flags go build ./cverbs ./udat/... ./cmd/... &&
    CGO_CFLAGS=$flags go vet ./cverbs); then
    echo "$folder: builds"
  else
    echo "$folder: does not build"
    failed=1
  fi
done
exit $failed
