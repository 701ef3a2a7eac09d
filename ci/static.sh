#!/usr/bin/env bash
# Builds bin/datperf-static, which contains libibverbs, librdmacm and all providers. It needs only
# the C library, so it runs on hosts without rdma-core's packages. The build needs the static
# libraries of libibverbs-dev, librdmacm-dev and libnl-route-3-dev.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
libraries=$(mktemp -d) # contains only static libraries, so that the linker uses these
trap 'rm -rf "$libraries"' EXIT
flags=$(pkg-config --static --libs-only-l libibverbs librdmacm)
for flag in $flags; do
  file=$(gcc -print-file-name="lib${flag#-l}.a")
  [ "$flag" = -lpthread ] || [ "$file" = "lib${flag#-l}.a" ] || ln -sf "$file" "$libraries"
done
CGO_CFLAGS="-O2 -g -DRDMA_STATIC_PROVIDERS=all" \
  CGO_LDFLAGS="-L$libraries -Wl,--start-group $flags -Wl,--end-group" \
  go build -trimpath -ldflags="-s -w" -o bin/datperf-static ./cmd/datperf
ldd bin/datperf-static
