#!/usr/bin/env bash
# Runs an MPI library for uDAPL over godat's DAT provider, and prints what passes.
#
#   lab/loopdev/loop.sh lab/mpi/run.sh --mpi PREFIX [options]         on the loop device
#   ci/rxe-vm.sh --out out -- lab/mpi/run.sh --mpi PREFIX [options]   on soft-RoCE, compared with libdaplofa
#
# PREFIX is an installed MVAPICH2 1.9 for uDAPL 2.0, built with --with-rdma=udapl. Run `make provider` before.
# The MPI library is used as it is.
#
#   --tests DIR     run MPICH's tests: programs DIR/SUITE-NAME, and their lists DIR/SUITE.testlist; tests that fail run again
#                   over shared memory, and over libdaplofa
#   --only "A B"    only the tests with these names
#   --osu DIR       run the OSU benchmarks in DIR: point-to-point and one-sided with 2 ranks, collectives with each number
#   --rounds N      rounds of the benchmarks, in which the providers take turns (default 3); the table shows medians
#   --ranks "2 4"   numbers of ranks for the checks
#   --limit SEC     time limit for one program (default 120)
#   --providers P   daplofa, godat, or both (default)
#   --no-checks     only tests and benchmarks
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
mpi='' tests='' osu='' ranks='2 4' limit=120 checks=yes providers_of='' only='' rounds=3
while [ $# -gt 0 ]; do
  case $1 in
    --mpi) mpi=$2; shift ;;
    --tests) tests=$2; shift ;;
    --osu) osu=$2; shift ;;
    --ranks) ranks=$2; shift ;;
    --limit) limit=$2; shift ;;
    --providers) providers_of=$2; shift ;;
    --only) only=" $2 "; shift ;;
    --rounds) rounds=$2; shift ;;
    --no-checks) checks=no ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2 ;;
  esac
  shift
done
[ -x "$mpi/bin/mpicc" ] || { echo "run.sh: no $mpi/bin/mpicc: --mpi must name an installed MPI library" >&2; exit 2; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# The kernel does not know the loop device. So on the loop device the C library's provider has no
# device.
device=${GODAT_TEST_DEVICE:-rxe0}
providers=godat
echo "godat u2.0 nonthreadsafe default $root/bin/libgodat.so dapl.2.0 \"$device\" \"\"" >"$tmp/dat.conf"
if netdev=$(cat "/sys/class/infiniband/$device/ports/1/gid_attrs/ndevs/0" 2>/dev/null); then
  providers='daplofa godat'
  echo "daplofa u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"$netdev 0\" \"\"" >>"$tmp/dat.conf"
fi
providers=${providers_of:-$providers}
export DAT_OVERRIDE=$tmp/dat.conf MV2_ENABLE_AFFINITY=0

# mpirun PROVIDER|shm RANKS PROGRAM... runs a program. PROVIDER is a name in dat.conf.
mpirun() {
  local provider=$1 n=$2 shm=0
  shift 2
  [ "$provider" != shm ] || shm=1 provider=godat
  MV2_USE_SHARED_MEM=$shm MV2_DAPL_PROVIDER=$provider timeout -k 5 "$limit" "$mpi/bin/mpiexec.hydra" -launcher fork -n "$n" "$@" \
    </dev/null 2>&1
}

failed=0
if [ $checks = yes ]; then
  env -u LD_PRELOAD "$mpi/bin/mpicc" -w -O1 -o "$tmp/check" "$here/check.c"
  for provider in $providers; do
    for n in $ranks; do
      for part in hello messages collective onesided; do
        if out=$(mpirun "$provider" "$n" "$tmp/check" $part) && grep -q ' 0 errors' <<<"$out"; then
          echo "ok      $provider: $(grep ' 0 errors' <<<"$out")"
        else
          echo "FAILED  $provider: $n ranks, $part: $(tail -n 3 <<<"$out" | tr '\n' ' ')"
          [ "$provider" != godat ] || failed=1
        fi
      done
    done
  done
fi

# passes PROVIDER|shm RANKS PROGRAM runs one of MPICH's tests, and succeeds if the test passes.
passes() { mpirun "$@" | grep -qi 'no errors'; }

if [ -n "$tests" ]; then
  for list in "$tests"/*.testlist; do
    suite=$(basename "$list" .testlist) good=0 also=0 alone=()
    while read -r name n _; do
      [[ $name != \#* && -x $tests/$suite-$name && ${n:-1} -ge 2 && ${n:-1} -le 4 ]] || continue
      [[ -z $only || $only == *" $name "* ]] || continue
      if passes godat "$n" "$tests/$suite-$name"; then
        good=$((good + 1))
      elif ! passes shm "$n" "$tests/$suite-$name"; then
        also=$((also + 1))
        echo "fails over shared memory too: $suite/$name"
      elif [[ $providers == *daplofa* ]] && ! passes daplofa "$n" "$tests/$suite-$name"; then
        also=$((also + 1))
        echo "fails over libdaplofa too: $suite/$name"
      else
        alone+=("$name")
      fi
    done <"$list"
    echo "$suite: $good passed, $also fail elsewhere too, ${#alone[@]} fail over libgodat alone: ${alone[*]-}"
  done
fi

# bench PROGRAM RANKS runs one round. It prints lines of program, ranks, bytes, provider and value.
# If a program fails, or takes longer than the limit, its lines so far count.
# Each rank has a processor, which is MVAPICH2's default. Otherwise Linux puts both ranks on one processor at times.
bench() {
  for provider in $providers; do
    { MV2_ENABLE_AFFINITY=1 mpirun "$provider" "$2" "$osu/$1" || echo "$1: status $? (124: longer than --limit)" >&2; } |
      awk -v start="$1 $2" -v end="$provider" \
      'NF >= 2 && $1 ~ /^[0-9]+$/ && ($1 == 8 || $1 == 4096 || $1 == 65536 || $1 == 1048576) {print start, $1, end, $2}
       NF == 1 && $1 ~ /^[0-9.]+$/ {print start, "-", end, $1}' | tee -a "$tmp/osu" | sed 's/^/round: /'
  done
}

if [ -n "$osu" ]; then
  for ((round = 0; round < rounds; round++)); do
    for program in "$osu"/osu_*; do
      name=$(basename "$program")
      case $name in
        osu_latency | osu_bw | osu_bibw | osu_put_* | osu_get_* | osu_acc_*) bench "$name" 2 ;;
        *) for n in $ranks; do bench "$name" "$n"; done ;;
      esac
    done
  done
  echo '| Benchmark | ranks | bytes | libdaplofa | libgodat | ratio |'
  echo '|---|--:|--:|--:|--:|--:|'
  sort -k1,1 -k2,2n -k3,3n -k5,5n "$tmp/osu" | awk '
    { key = $1 " | " $2 " | " $3 }
    !(key in seen) { seen[key] = 1; order[++keys] = key }
    { values[key, $4, ++n[key, $4]] = $5 }
    function median(key, provider) { return values[key, provider, int((n[key, provider] + 1) / 2)] }
    END {
      for (i = 1; i <= keys; i++) {
        c = median(order[i], "daplofa")
        g = median(order[i], "godat")
        printf "| %s | %s | %s | %s |\n", order[i], c, g, (c > 0 && g > 0 ? sprintf("%.2f", g / c) : "")
      }
    }'
fi
exit $failed
