#!/bin/bash
#SBATCH --job-name=datperf-mesh
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
# Measures between all nodes of a Slurm job, and writes datperf-mesh-JOB.html and .json.
#
#   sbatch -N 64 mesh.sh [flags of datperf mesh]      default flags: -m lat,bw
#   salloc -N 4 ./mesh.sh -t write -m bw -D 2 --pattern incast
#
# DATPERF             the program, at the same place on all nodes; default: datperf
# DATPERF_SERVER      more flags of datperf server; each node's shell expands them: '--bind $SLURMD_NODENAME'
set -euo pipefail
: "${SLURM_JOB_ID:?start this with sbatch or salloc}"
export DATPERF=${DATPERF:-datperf} DATPERF_SERVER=${DATPERF_SERVER:-}
[ $# -gt 0 ] || set -- -m lat,bw

# The secret of this job, for its nodes alone: each keeps it in a file that only this user may read.
DATPERF_SECRET=$(od -An -v -tx1 -N 32 /dev/urandom | tr -d ' \n')
export DATPERF_SECRET
umask 077
secret=$(mktemp)
printf %s "$DATPERF_SECRET" >"$secret"

# shellcheck disable=SC2016 # each node expands it
srun --job-name=datperf-servers --ntasks-per-node=1 --overlap bash -c 'umask 077
  file=$(mktemp) && printf %s "$DATPERF_SECRET" >"$file" && unset DATPERF_SECRET
  eval "\"$DATPERF\" server --allow-mesh --secret $file $DATPERF_SERVER" >"$file.log" 2>&1 &
  server=$! ended=
  trap "ended=yes; kill $server 2>/dev/null" TERM INT
  wait $server || [ "$ended" ] || cat "$file.log" >&2
  wait $server
  rm -f "$file" "$file.log"' &
servers=$!
finish() {
  rm -f "$secret"
  local step
  step=$(squeue --steps --jobs "$SLURM_JOB_ID" --noheader --format "%i %j" | awk '$2 == "datperf-servers" { print $1 }')
  [ -z "$step" ] || scancel --signal TERM "$step"
  # A node that is gone keeps srun waiting: 20 seconds for the others to end.
  (sleep 20 && kill "$servers") 2>/dev/null &
  wait "$servers" || true
  kill $! 2>/dev/null || true
}
trap finish EXIT

out=datperf-mesh-$SLURM_JOB_ID
scontrol show hostnames "$SLURM_JOB_NODELIST" |
  "$DATPERF" mesh --hosts - --secret "$secret" --wait 1m --html "$out.html" --json "$out.json" "$@"
