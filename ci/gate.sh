#!/usr/bin/env bash
# Runs the gate, `make test`: what every change must pass. Each part is a target of the Makefile. The whole output of
# a part is in out/gate/PART.log; here appear its packages, its failures, and a line that sums it up.
#
#   ci/gate.sh [PART...]     default: all parts. Parts that are named run one after another
set -euo pipefail
cd "$(dirname "$0")/.."
log=out/gate
awk=(awk)
if awk -W version </dev/null 2>&1 | grep -q mawk; then awk+=(-W interactive); fi # each line at once
checks=(deps lint cross) lanes=('race lab' 'loop tcp' vm)
read -ra all <<<"${checks[*]} ${lanes[*]}"
rm -rf "$log"
mkdir -p "$log"

# part runs one part. It fails if the part fails.
part() {
  local name=$1 target=test-$1 status=0
  [[ " ${checks[*]} " != *" $name "* ]] || target=$name
  echo "$name: runs make $target"
  TIMEFORMAT='%0R s, processor %0U + %0S s'
  { time make --no-print-directory "$target" V=-v 2>&1 | tee "$log/$name.log" |
    "${awk[@]}" -v part="$name" -v sums="$log/$name.sums" -f ci/gate.awk | tee "$log/$name.short"; } 2>"$log/$name.time" || status=1
  local result=passed
  [ $status = 0 ] || result=FAILED
  echo "$name: $result, $(cat "$log/$name.sums")$(tail -n 1 "$log/$name.time")" | tee "$log/$name.sum"
  return $status
}

# parts runs parts one after another, all of them even if one fails.
parts() {
  local name status=0
  for name; do part "$name" || status=1; done
  return $status
}

# report repeats the sums of the parts, and the last lines of those that failed.
# shellcheck disable=SC2317 # the trap calls it
report() {
  local name
  echo
  for name in "${all[@]}"; do
    [ ! -e "$log/$name.sum" ] || cat "$log/$name.sum"
  done
  for name in "${all[@]}"; do
    grep -q ': FAILED' "$log/$name.sum" 2>/dev/null || continue
    echo
    echo "The end of $log/$name.short, of $log/$name.log:"
    if [ -s "$log/$name.short" ]; then tail -n 40 "$log/$name.short"; else tail -n 40 "$log/$name.log"; fi
  done
}
trap report EXIT

if [ $# -gt 0 ]; then
  parts "$@"
  exit
fi
echo "The gate takes 5 to 8 minutes on two processors with a warm build cache, and 17 the first time."
echo "First ${checks[*]}; then at the same time: $(printf '%s; ' "${lanes[@]}")vm is a real verbs device. Logs: $log"
for name in "${checks[@]}"; do part "$name"; done
pids=() status=0
for lane in "${lanes[@]}"; do
  # shellcheck disable=SC2086 # a lane is a list of parts
  parts $lane &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || status=1; done
exit $status
