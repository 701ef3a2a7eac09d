#!/usr/bin/env bash
# Builds MVAPICH2 1.9 for uDAPL 2.0, MPICH's tests and OSU's benchmarks. lab/mpi/run.sh runs all
# three.
#
#   lab/mpi/build.sh SOURCE PREFIX [jobs]
#
# SOURCE is a tree of MVAPICH2 1.9, which is not changed. The library is installed in PREFIX, the
# programs for `run.sh --tests` in PREFIX/tests, and those for `run.sh --osu` in PREFIX/osu. It
# needs gcc, make, autoconf, automake, libtool, flex, bison and libdapl-dev.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2; }
source=$(cd "$1" && pwd)
mkdir -p "$2"
prefix=$(cd "$2" && pwd)
jobs=${3:-$(nproc)}
[ -e "$source/src/mpid/ch3/channels/mrail/src/udapl" ] || { echo "build.sh: SOURCE $source: no MVAPICH2 with uDAPL" >&2; exit 2; }
work=$(mktemp -d "$prefix/build.XXXXXX") # kept after an error
cp -a "$source/." "$work"
cd "$work"

# Today's automake warns, which must not be an error. Today's gcc aligns a type only where the type
# is declared, and glibc has no sys_siglist since 2.32. OSU's benchmarks are built below, because
# their own Makefile needs OpenACC.
grep -rl AM_INIT_AUTOMAKE --include=configure.ac . | xargs sed -i '/AM_INIT_AUTOMAKE/s/ -Werror//'
sed -i 's/^} MPID_Request ATTRIBUTE((__aligned__(32)));/} ATTRIBUTE((__aligned__(32))) MPID_Request;/' src/include/mpiimpl.h
grep -rl sys_siglist --include='*.c' . | xargs sed -i 's/sys_siglist\[\([a-z]*\)\]/strsignal(\1)/'
sed -i '/^SUBDIRS/s/ osu_benchmarks / /' Makefile.am

PERL_USE_UNSAFE_INC=1 ./autogen.sh
./configure --prefix="$prefix" --with-device=ch3:mrail --with-rdma=udapl --with-dapl-version=2.0 --disable-registration-cache \
  --disable-f77 --disable-fc --disable-cxx --disable-romio --disable-mcast --disable-shared --with-pm=hydra \
  CFLAGS='-fcommon -w -O1 -g'
make -j"$jobs"
make install

# MPICH's tests need what their own configure would find. Every current host has all of it.
mkdir -p "$prefix/tests" "$prefix/osu"
for have in STDIO_H STDLIB_H STRING_H STRINGS_H STDARG_H UNISTD_H INTTYPES_H STDINT_H SYS_TIME_H SYS_TYPES_H MALLOC_H; do
  echo "#define HAVE_$have 1"
done >test/mpi/mpitestconf.h
echo '#define STDC_HEADERS 1' >>test/mpi/mpitestconf.h
mpicc="$prefix/bin/mpicc -w -O1 -fcommon"
$mpicc -Itest/mpi -Itest/mpi/include -c test/mpi/util/mtest.c -o mtest.o
left=''
for suite in pt2pt coll rma; do
  cp "test/mpi/$suite/testlist" "$prefix/tests/$suite.testlist"
  while read -r name _; do
    [[ -n $name && $name != \#* ]] || continue
    $mpicc -Itest/mpi -Itest/mpi/include "test/mpi/$suite/$name.c" mtest.o -lm -o "$prefix/tests/$suite-$name" 2>/dev/null || left+=" $suite/$name"
  done <"$prefix/tests/$suite.testlist"
done
# The benchmarks measure only the four sizes of the table of run.sh. With all 22 one takes ten minutes on soft-RoCE.
sed -Ei -e '/for ?\(size ?= ?[01]/{' -e 's/= ?[01]/= 8/' -e 's/; *size +?\*?= .*\) \{/; size = size < 4096 ? 4096 : size * 16) {/' \
  -e '/sizeof\(float\)/{s/= 8/= 2/;s/4096/1024/g}' -e '}' -e 's/(define MAX_(MSG_)?SIZE) .*/\1 (1 << 20)/' osu_benchmarks/osu_*.c
for program in osu_benchmarks/osu_*.c; do
  name=$(basename "$program" .c)
  [ "$name" != osu_coll ] || continue # not a program, but a part of the others
  for common in '' osu_benchmarks/osu_coll.c; do # some programs need it
    $mpicc "$program" $common -lm -o "$prefix/osu/$name" 2>/dev/null && continue 2
  done
  left+=" osu/$name"
done
rm -rf "$work"
echo "installed in $prefix; not built:${left:- none}"
