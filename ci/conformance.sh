#!/usr/bin/env bash
# Runs the conformance suite on every fabric and writes docs/conformance/table.md. Fails if a test fails, or if a rule
# that the table in the working tree shows as proven no longer is.
#
#   ci/conformance.sh [FABRIC...]     default: mem0 rxe siw. A part of them only shows its summary and what is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
table=docs/conformance/table.md
[ $# = 0 ] || table=''
[ $# -gt 0 ] || set -- mem0 rxe siw

out=$(mktemp -d "${TMPDIR:-/tmp}/godat-conformance.XXXXXXXX")
trap 'rm -rf "$out"' EXIT
go test -c -o "$out/udat.test" ./udat
cd udat
failed=0
for fabric; do
  : >"$out/$fabric.tsv"
  echo "conformance: $fabric" >&2
  case $fabric in
    mem0) env -u GODAT_TEST_DEVICE GODAT_RULES_OUT="$out/mem0.tsv" "$out/udat.test" -test.timeout=1200s >"$out/log" 2>&1 ;;
    rxe | siw)
      "$here/deps.sh" "$([ "$fabric" = siw ] && echo siw || echo vm)"
      "$here/rxe-vm.sh" --device "$fabric" --out "$out" --timeout 2400 --memory 3072 \
        --env "GODAT_TEST_DEVICE=${fabric}0" --env "GODAT_RULES_OUT=$out/$fabric.tsv" -- \
        "$out/udat.test" -test.timeout=2000s >"$out/log" 2>&1 ;;
    *) echo "conformance: no fabric '$fabric'" >&2; exit 2 ;;
  esac || { failed=1; cat "$out/log"; echo "conformance: the suite failed on $fabric" >&2; }
done
cd ..
go run ./internal/conformance docs/conformance/rules.tsv "${table:-$out/table.md}" "$out"/*.tsv || failed=1
[ -n "$table" ] || { grep '| missing |$' "$out/table.md" | cut -d '|' -f 2,3 || true; }
exit $failed
