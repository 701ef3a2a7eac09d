#!/usr/bin/env bash
# Builds and runs the example echo as a user would: in another module, outside this repository. So
# the build cannot use anything that only this repository has.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d "${TMPDIR:-/tmp}/godat-outside.XXXXXXXX")
trap 'rm -rf "$dir"' EXIT
cp "$top/examples/echo/main.go" "$dir/"
cd "$dir"
go mod init example.org/outside 2>/dev/null
go mod edit -require github.com/godat/godat@v0.0.0 -replace "github.com/godat/godat=$top"
go mod tidy
go build -o outside .
{ ./outside 2>&1 || true; } | grep -q "usage: echo" || { echo "outside: the program does not run" >&2; exit 1; }
CGO_ENABLED=0 GOOS=darwin go build -o /dev/null .
echo "outside: a module of its own builds and runs the example"
