#!/usr/bin/env bash
# Prints what this host lacks to build cverbs with verbs, and how to get it. Installs nothing.
set -euo pipefail
[ "$(uname)" = Linux ] && [ "${CGO_ENABLED:-1}" != 0 ] || exit 0
compiler=${CC:-gcc}
missing=()
command -v "${compiler%% *}" >/dev/null || missing+=("a C compiler ($compiler)")
if [ ${#missing[@]} = 0 ]; then
  for header in infiniband/verbs.h rdma/rdma_cma.h; do
    # shellcheck disable=SC2086 # CC may have flags
    echo "#include <$header>" | $compiler ${CGO_CFLAGS:-} -E -xc - >/dev/null 2>&1 || missing+=("$header")
  done
fi
[ ${#missing[@]} -gt 0 ] || exit 0
printf 'not here: %s\n' "${missing[@]}" >&2
cat >&2 <<'HELP'
Debian, Ubuntu:  apt-get install gcc libc6-dev libibverbs-dev librdmacm-dev   (or: ci/deps.sh build)
Fedora, RHEL:    dnf install gcc rdma-core-devel
SUSE:            zypper install gcc rdma-core-devel
Without them:    CGO_ENABLED=0 make build   (no verbs: tcp and mem0 only)
HELP
exit 1
