#!/usr/bin/env bash
# Runs the conformance suite on every fabric and writes docs/conformance/table.md. Fails if a test
# fails, or if a rule is no longer proven that the table in the working tree shows as proven.
#
#   ci/conformance.sh [FABRIC...]     default: mem0 tcp rxe siw; only the columns of these fabrics change
#
# If a suite fails or does not end, the tests that passed still count, and the suites on the other
# fabrics still run. Each suite may take GODAT_CONFORMANCE_LIMIT seconds (default 720).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
table=docs/conformance/table.md
[ $# -gt 0 ] || set -- mem0 tcp rxe siw
limit=${GODAT_CONFORMANCE_LIMIT:-720}

out=$(mktemp -d "${TMPDIR:-/tmp}/godat-conformance.XXXXXXXX")
trap 'rm -rf "$out"' EXIT
go test -c -o "$out/udat.test" ./udat
cd udat

suite() { # FABRIC: one run of the suite
  local arguments=(-test.v "-test.timeout=${limit}s")
  case $1 in
    mem0) env -u GODAT_TEST_DEVICE GODAT_RULES_OUT="$out/mem0.tsv" "$out/udat.test" "${arguments[@]}" ;;
    tcp) GODAT_TEST_DEVICE=tcp:127.0.0.1 GODAT_RULES_OUT="$out/tcp.tsv" "$out/udat.test" "${arguments[@]}" ;;
    rxe | siw)
      "$here/deps.sh" "$([ "$1" = siw ] && echo siw || echo vm)" &&
        "$here/rxe-vm.sh" --device "$1" --out "$out" --timeout $((limit + 60)) --memory 3072 \
          --env "GODAT_TEST_DEVICE=${1}0" --env "GODAT_RULES_OUT=$out/$1.tsv" -- "$out/udat.test" "${arguments[@]}" ;;
    *) echo "conformance: no fabric '$1'" >&2; return 2 ;;
  esac
}

# Prints what matters of a failed suite, at most 400 lines: each failed test with its messages, but
# without the draws of the model tests, and the stacks if a test did not end.
failures() {
  awk '/^=== (RUN|PAUSE|CONT|NAME)/ || /\[rapid\] draw/ { next }
    /^panic: test timed out|^SIGQUIT/ { all = 1 }
    (all || /^ *--- FAIL|^FAIL|_test\.go:[0-9]+: /) && printed++ < 400 { print }' "$1"
}

failed=0
for fabric; do
  : >"$out/$fabric.tsv"
  begun=$SECONDS
  if suite "$fabric" >"$out/$fabric.log" 2>&1; then
    result=passed
  else
    failed=1 result=FAILED
    failures "$out/$fabric.log"
  fi
  echo "conformance: $fabric: the suite $result in $((SECONDS - begun)) s; its longest tests:" >&2
  sed -n 's/^--- [A-Z]*: \([^ ]*\) (\(.*\)s)$/\2 \1/p' "$out/$fabric.log" | sort -rn | head -n 5 | sed 's/^/  /' >&2 || true
done
cd ..
go -C lab build -o "$out/" ./conformance
"$out/conformance" docs/conformance/{rules,limits}.tsv "$table" "$out"/*.tsv || failed=1
exit $failed
