#!/bin/bash
# Second stage inside the guest, on the host's root file system with a scratch layer over it.
# /run/godat is the control share: rxe-vm.sh or uml-vm.sh has written config, command and collect
# there, and this script writes status.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
control=/run/godat
b=/bin/busybox
self='' device='' join='' memlock='' kernel_modules='' out='' epoch=0 mhz='' # kernel_modules: qemu only; mhz: User Mode Linux only
# shellcheck disable=SC1091
. $control/config
: >$control/started

problem() { echo "$self: guest: $*" >&4; }
off() {
  echo "$1" >$control/status
  $b poweroff -f
  sleep 60
}

$b mount -t sysfs sys /sys
[ ! -e /proc/sys/vm/nr_hugepages ] || echo 16 >/proc/sys/vm/nr_hugepages # for tests of memory in huge pages
$b mkdir -p /dev/pts /dev/shm
$b mount -t devpts -o mode=620,ptmxmode=666 pts /dev/pts
$b mount -t tmpfs -o mode=1777 shm /dev/shm
$b ln -sfn /proc/self/fd /dev/fd
$b ln -sfn /proc/self/fd/0 /dev/stdin
$b ln -sfn /proc/self/fd/1 /dev/stdout
$b ln -sfn /proc/self/fd/2 /dev/stderr

# A virtio port can be opened only once, but programs may open /dev/stdout again, so they get pipes.
stdout=/dev/ttyS0 stderr=/dev/ttyS1
if [ -n "$mhz" ]; then
  $b stty -F $stdout raw -echo
  $b stty -F $stderr raw -echo
  # perftest reads the rate of the time stamp counter from this file.
  sed "s/^bogomips.*/&\ncpu MHz\t\t: $mhz/" /proc/cpuinfo >/run/cpuinfo && $b mount --bind /run/cpuinfo /proc/cpuinfo
else
  for _ in $($b seq 100); do
    for stderr in /dev/vport*p2; do [ ! -c "$stderr" ] || break 2; done
    $b sleep 0.05
  done
  stdout=${stderr%2}1
fi
$b mkfifo /run/stdout /run/stderr
$b cat </run/stdout >"$stdout" &
cat_out=$!
$b cat </run/stderr >"$stderr" &
cat_err=$!
exec 3>/run/stdout 4>/run/stderr

now=$($b date +%s)
if [ $((now - epoch)) -lt -2 ] || [ $((now - epoch)) -gt 300 ]; then $b date -s "@$epoch" >/dev/null; fi

$b hostname godat-vm
cat >/etc/hosts <<'HOSTS'
127.0.0.1 localhost godat-vm
::1 localhost ip6-localhost
10.98.0.1 rdma0
fd98::1 rdma0
10.98.1.1 rdma1
fd98:1::1 rdma1
HOSTS

# modprobe loads further modules (veth, sch_netem, ...) from the cache.
if [ -n "$kernel_modules" ] && $b mkdir -p /lib/modules 2>/dev/null; then
  $b mount --bind "$kernel_modules" /lib/modules
fi

if [ "$device" = siw ]; then
  [ -z "$kernel_modules" ] || modprobe siw || problem "could not load siw"
  echo 1 >/proc/sys/net/ipv4/tcp_syn_retries # siw connects inside a system call: that takes at most three seconds then, not two minutes
fi

$b ip link set lo up
[ -z "$join" ] || modprobe virtio_net || problem "could not load virtio_net"
for i in 0 1; do
  [ -z "$join" ] || [ $i = 0 ] || continue # a cable has one port
  # The first port's RDMA packets have 4096 bytes, the second port's have 1024 bytes.
  mtu=9000
  [ $i = 0 ] || mtu=1500
  prefix=fd98
  [ $i = 0 ] || prefix=fd98:1
  set_up() {
    { [ -n "$join" ] || ip link add eth$i mtu $mtu address 02:00:5e:98:00:0$((i + 1)) type dummy; } && ip link set eth$i up &&
      ip addr add 10.98.$i."${join:-1}"/24 dev eth$i && ip addr add $prefix::"${join:-1}"/64 dev eth$i nodad &&
      rdma link add "$device$i" type "$device" netdev eth$i
  }
  set_up || problem "could not set up $device$i on eth$i"
done

if [ -n "$out" ]; then
  $b mkdir -p "$out"
  if [ -n "$mhz" ]; then $b mount -t hostfs -o "$out" out "$out"
  else $b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=mmap out "$out"; fi || problem "could not mount the output folder $out"
fi

ulimit -l "$memlock"
ulimit -n 65536
ulimit -c 0
bash $control/command </dev/null >&3 2>&4 3>&- 4>&-
status=$?

# Files that go test expects from its test binary.
i=0
while IFS= read -r path; do
  i=$((i + 1))
  [ ! -e "$path" ] || $b cp -R "$path" "$control/collected.$i" || problem "could not bring back $path"
done <$control/collect

# A process that the command has left running may keep the pipes open: do not wait for it without a
# limit.
exec 3>&- 4>&-
($b sleep 3; $b kill $cat_out $cat_err) 2>/dev/null &
wait $cat_out $cat_err
off $status
