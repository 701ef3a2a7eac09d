# shellcheck shell=bash
# The common part of ci/deb.sh and ci/rpm.sh, which source this file in the repository's root.

version=0.0.0
if commit=$(git log -1 --format=%cd.%h --date=format:%Y%m%d.%H%M 2>/dev/null); then
  version=0.0.0+git$commit
fi

# Installs what a package contains into a folder: datperf, manual pages, completion, systemd unit, documentation.
stage() { # FOLDER ZSH [BINARY]    ZSH: folder of the distribution's zsh completions; default of BINARY: build one
  local root=$1 zsh=$1$2 binary=${3:-out/datperf}
  local bash=$root/usr/share/bash-completion/completions fish=$root/usr/share/fish/vendor_completions.d
  local man=$root/usr/share/man/man1 doc=$root/usr/share/doc/datperf
  if [ $# -lt 3 ]; then
    mkdir -p out
    go build -buildmode=pie -trimpath -ldflags "-X main.stamped=$version" -o "$binary" ./cmd/datperf
  fi
  mkdir -p "$root"/{etc/default,etc/datperf,usr/bin,usr/lib/systemd/system} "$bash" "$zsh" "$fish" "$man" "$doc"
  install -m 755 "$binary" "$root/usr/bin/datperf"
  strip "$root/usr/bin/datperf"
  "$binary" man "$man" && gzip -9n "$man"/*.1
  "$binary" completion bash >"$bash/datperf"
  "$binary" completion zsh >"$zsh/_datperf"
  "$binary" completion fish >"$fish/datperf.fish"
  install -m 644 ci/deb/datperf.service "$root/usr/lib/systemd/system/"
  install -m 644 docs/datperf.md "$doc/"
  install -m 755 deploy/slurm/mesh.sh "$doc/slurm-mesh.sh"
  install -m 644 deploy/kubernetes/*.yaml "$doc/"
  cat >"$root/etc/default/datperf" <<'END'
# Flags of datperf server, see datperf-server(1):
# The service runs as a user of its own. Put a secret into /etc/datperf/secret (root, mode 0600); the service reads its
# copy, /run/credentials/datperf.service/datperf_secret.
#DATPERF_FLAGS="--bind 10.0.0.1 --prometheus :9101 --secret /run/credentials/datperf.service/datperf_secret"
END
  chmod 700 "$root/etc/datperf"
}
