#!/usr/bin/env bash
# Runs deploy/slurm/mesh.sh under a real Slurm with three nodes on this host, over tcp. Everything
# runs in new namespaces for network, host names and processes. Needs root, and Debian's packages
# slurm-wlm and munge.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1:-}" != inside ]; then
  for program in slurmctld slurmd srun munged; do
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null ||
      { echo "slurm-check: no $program here (apt-get install slurm-wlm munge)" >&2; exit 1; }
  done
  [ -x bin/datperf ] || { echo "slurm-check: there is no bin/datperf: run make build" >&2; exit 1; }
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  chmod 755 "$folder"
  unshare --mount --net --uts --pid --fork --mount-proc --kill-child "$0" inside "$folder"
  exit
fi

folder=$2
export PATH=$PATH:/usr/sbin SLURM_CONF=$folder/slurm.conf
fail() { echo "slurm-check: $*" >&2; tail -n 20 "$folder"/*.log >&2; exit 1; }
hostname n0
ip link set lo up
printf '127.0.0.1 localhost\n10.98.9.9 n0\n' >"$folder/hosts"
for n in 1 2 3; do
  ip addr add "10.98.9.$n/32" dev lo
  echo "10.98.9.$n n$n" >>"$folder/hosts"
  mkdir -p "$folder/n$n"
done
ip addr add 10.98.9.9/32 dev lo
mount --bind "$folder/hosts" /etc/hosts
mount -t tmpfs none /run
mkdir -p /run/munge "$folder/state"
head -c 128 /dev/urandom >"$folder/munge.key"
chmod 600 "$folder/munge.key"
cat >"$SLURM_CONF" <<END
ClusterName=check
SlurmctldHost=n0
SlurmUser=root
SlurmctldPort=6817
AuthType=auth/munge
AuthInfo=socket=/run/munge/socket
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/%n/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
MpiDefault=none
$(for n in 1 2 3; do echo "NodeName=n$n NodeHostname=n0 NodeAddr=10.98.9.$n Port=700$n CPUs=2"; done)
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=NO
END
munged --foreground --force --socket=/run/munge/socket --key-file="$folder/munge.key" --log-file="$folder/munged.log" \
  --pid-file=/run/munge/pid --seed-file=/run/munge/seed >"$folder/munge-out.log" 2>&1 &
for _ in $(seq 100); do [ -S /run/munge/socket ] && break; sleep 0.1; done
[ -S /run/munge/socket ] || fail "munged does not start"
slurmctld -D >"$folder/slurmctld-out.log" 2>&1 &
for n in 1 2 3; do slurmd -D -N "n$n" >"$folder/slurmd-out-$n.log" 2>&1 & done
for _ in $(seq 300); do [ "$(sinfo -h -N -o %T 2>/dev/null | grep -c idle)" = 3 ] && break; sleep 0.2; done
[ "$(sinfo -h -N -o %T | grep -c idle)" = 3 ] || fail "the nodes are not idle"

export DATPERF=$PWD/bin/datperf
# shellcheck disable=SC2016 # each node expands it
export DATPERF_SERVER='--device tcp --bind $SLURMD_NODENAME'
export TMPDIR=$folder/tmp
mkdir "$TMPDIR"
script=$PWD/deploy/slurm/mesh.sh
cd "$folder"
timeout 120 salloc -N 3 "$script" -m lat,bw -n 100 || fail "salloc: status $?"
grep -q '"pattern": "pairs"' datperf-mesh-*.json || fail "no document"
rm -f datperf-mesh-*
left() { # fails if the nodes leave temporary files, which contain secrets
  for _ in $(seq 50); do [ -z "$(ls -A "$TMPDIR")" ] && return; sleep 0.2; done
  fail "left on the nodes: $(ls "$TMPDIR")"
}
left
timeout 120 sbatch --wait -N 3 -o "$folder/sbatch.log" "$script" -m bw -D 100ms --pattern incast || fail "sbatch: status $?"
grep -q '^into one host from all others' "$folder/sbatch.log" || fail "sbatch measured nothing"
for _ in $(seq 50); do pgrep -f "datperf server" >/dev/null || break; sleep 0.2; done
! pgrep -f "datperf server" || fail "servers are left"
left
[ -z "$(squeue -h)" ] || fail "jobs are left: $(squeue -h)"
echo "slurm-check: sbatch and salloc measure a mesh of three nodes, and leave nothing"
