#!/usr/bin/env bash
# Installs what godat needs to be built and tested. If everything is installed already, it does
# nothing and is quick.
#
#   ci/deps.sh [build] [vm] [lint] [provider] [tshark] [siw] [bench] [uml] [packages] [wine]
#                              without an argument: build lint provider tshark, and vm on amd64
#
#   build   compiler, make, libibverbs and librdmacm, and their headers for the tests and the loop device
#   vm      what ci/rxe-vm.sh needs: qemu, RDMA user space and tools, a stock Debian kernel
#   lint    shellcheck
#   provider  the headers of libdat2, and the programs that test a DAT provider
#   tshark  tshark, with which the tests of the tcp fabric check its frames
#   siw     the soft-iWARP module, built for that kernel (150 MB download; implies vm)
#   bench   what ci/bench.sh compares with: perftest, cmtime, dapltest, libfabric's fi_pingpong
#   packages  what make rpm and the checks of packages, service and deploy/ need: rpmbuild, lintian, a container, Slurm
#   wine    Wine and a C compiler for Windows, for ci/windows-tests.sh
#   uml     the kernel of ci/uml-vm.sh, built from the source in Debian unstable (150 MB download, 3 GB while it
#           builds, about 5 minutes)
#
# The kernel is unpacked into ${GODAT_CACHE:-${XDG_CACHE_HOME:-~/.cache}/godat}, never installed.
set -euo pipefail

cache=${GODAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/godat}
linux=$cache/linux

say() { printf 'deps: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

packages=()
want_kernel=false want_siw=false want_uml=false
# The virtual machine is for amd64 only. On other architectures everything else can be installed;
# tests then use the host's device, or none.
if [ $# = 0 ]; then
  set -- build lint provider tshark
  if [ "$(uname -m)" = x86_64 ]; then set -- "$@" vm; else say "no virtual machine on $(uname -m): it is for amd64 hosts"; fi
fi
for part in "$@"; do
  case $part in
    build) packages+=(gcc libc6-dev make ca-certificates libibverbs-dev librdmacm-dev) ;;
    vm) want_kernel=true ;;
    lint) packages+=(shellcheck) ;;
    provider) packages+=(libdapl-dev dapl2-utils) ;;
    tshark) packages+=(tshark) ;;
    siw) want_kernel=true want_siw=true ;;
    bench) packages+=(perftest rdmacm-utils dapl2-utils libfabric-bin iproute2) ;;
    packages) packages+=(rpm rpmlint lintian debootstrap systemd-container slurm-wlm munge) ;;
    wine) packages+=(wine wine64 gcc-mingw-w64-x86-64) ;;
    uml) want_uml=true ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    *) say "unknown part '$part' (known: build vm lint provider tshark siw bench uml packages wine)"; exit 2 ;;
  esac
done
if $want_kernel; then
  packages+=(gcc libc6-dev qemu-system-x86 busybox-static kmod cpio xz-utils util-linux iproute2 iputils-ping
    rdma-core ibverbs-providers ibverbs-utils rdmacm-utils perftest dapl2-utils nftables iptables ethtool)
fi
$want_siw && packages+=(gcc-12 libc6-dev make libelf1)
if $want_uml; then
  uml_sources=("$(dirname "$0")/../lab/uml/config" "$(dirname "$0")/../lab/uml/vdso-clock.patch")
  uml=$cache/uml-$(cat "${uml_sources[@]}" | cksum | cut -d ' ' -f 1)
  packages+=(busybox-static cpio util-linux iproute2 procps rdma-core ibverbs-providers ibverbs-utils)
  [ -e "$uml/linux" ] || packages+=(gcc libc6-dev make bison flex bc m4 libelf-dev patch xz-utils)
fi

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "need root to run: $* (no sudo here)"
  fi
}

updated=false
apt_update() { # once per run
  $updated && return
  say "apt-get update"
  as_root apt-get -qq update || say "apt-get update failed; going on with the package lists at hand"
  updated=true
}

need_debian() { # PURPOSE
  # shellcheck disable=SC1091
  command -v apt-get >/dev/null && command -v dpkg-query >/dev/null && return
  say "this is not a Debian-like system (no apt-get), so $1 cannot be installed from here."
  say "Install by hand what these Debian packages hold: ${packages[*]}"
  die "or use the Dockerfile, which brings its own Debian."
}

install_packages() {
  local installed missing=() p
  installed=" $(dpkg-query -W -f '${db:Status-Abbrev}${Package} ' "${packages[@]}" 2>/dev/null || true) "
  for p in "${packages[@]}"; do
    [[ $installed == *" ii $p "* || $installed == *"ii  $p "* ]] || missing+=("$p")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  apt_update
  say "installing: ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get could not install: ${missing[*]}"
}

apt=()       # more options of apt
download() { # PACKAGE[=VERSION]..., unpacked into the directory $unpack
  local tmp deb
  tmp=$(mktemp -d "$cache/download.XXXXXX")
  say "downloading $*"
  (cd "$tmp" && apt-get -qq -o APT::Sandbox::User=root "${apt[@]}" download "$@") ||
    { rm -rf "$tmp"; die "could not download $*"; }
  for deb in "$tmp"/*.deb; do dpkg -x "$deb" "$unpack"; done
  rm -rf "$tmp"
}

# Extracts the compressed vmlinux from a bzImage, so that qemu can start it directly and the guest
# need not decompress it.
extract_vmlinux() { # BZIMAGE OUT
  local sectors offset length start
  sectors=$(od -An -tu1 -j $((0x1f1)) -N1 "$1")
  offset=$(od -An -tu4 -j $((0x248)) -N4 "$1")
  length=$(od -An -tu4 -j $((0x24c)) -N4 "$1")
  start=$(((sectors + 1) * 512 + offset))
  # The payload ends in a 4-byte size, which is not part of the xz stream.
  head -c $((start + length - 4)) "$1" | tail -c $((length - 4)) | xz -dc >"$2"
}

get_kernel() {
  local name version unpack
  [ -e "$linux/current/vmlinux" ] && return
  [ "$(dpkg --print-architecture)" = amd64 ] || die "the virtual machine is for amd64 hosts only"
  name=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: *\(linux-image-[0-9].*-amd64\)$/\1/p' | head -n 1)
  if [ -z "$name" ]; then
    apt_update
    name=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: *\(linux-image-[0-9].*-amd64\)$/\1/p' | head -n 1)
  fi
  [ -n "$name" ] || die "this distribution has no linux-image-amd64 package; the virtual machine needs Debian (or use the Dockerfile)"
  version=${name#linux-image-}
  unpack=$linux/$version.part
  rm -rf "$unpack"
  mkdir -p "$unpack"
  # An old package list may name a kernel that the mirror no longer has. Then refresh the list and
  # try again, once.
  if ! (download "$name"); then
    $updated && die "could not download $name"
    apt_update
    get_kernel
    return
  fi
  extract_vmlinux "$unpack/boot/vmlinuz-$version" "$unpack/vmlinux" || die "could not unpack the kernel of $name"
  rm -rf "${unpack:?}"/{boot,usr} "$unpack"/lib/modules/*/kernel/{sound,drivers/{gpu,media,staging,scsi,usb,iio,mtd,net/wireless}}
  apt-cache show "$name" | sed -n 's/^Version: //p' | head -n 1 >"$unpack/package-version"
  /sbin/depmod -b "$unpack" "$version"
  rm -rf "${linux:?}/$version"
  mv "$unpack" "$linux/$version"
  ln -sfn "$version" "$linux/current"
  say "kernel $version is in $linux"
}

# Debian's kernel has no module siw: build the module from the source of the same kernel version.
build_siw() {
  local version package unpack log
  version=$(readlink "$linux/current")
  package=$(cat "$linux/current/package-version")
  unpack=$linux/siw.part
  rm -rf "$unpack"
  mkdir -p "$unpack"
  download "linux-headers-$version=$package" "linux-headers-${version%-amd64}-common=$package" \
    "linux-kbuild-6.1=$package" "linux-source-6.1=$package"
  tar -C "$unpack" --strip-components=4 -xf "$unpack/usr/src/linux-source-6.1.tar.xz" linux-source-6.1/drivers/infiniband/sw/siw
  sed -i "s|/usr/src/|$unpack/usr/src/|" "$unpack/usr/src/linux-headers-$version/Makefile"
  log=$cache/siw-build.log
  say "building siw for $version"
  make -s -C "$unpack/usr/src/linux-headers-$version" M="$unpack/siw" CONFIG_RDMA_SIW=m modules >"$log" 2>&1 ||
    die "siw did not build: see $log"
  mkdir -p "$linux/current/lib/modules/$version/extra"
  strip -g -o "$linux/current/$siw_module" "$unpack/siw/siw.ko"
  /sbin/depmod -b "$linux/current" "$version"
  rm -rf "$unpack" "$log"
}

# Builds a User Mode Linux with rxe and siw. Debian stable's kernel is too old for it: User Mode
# Linux got several processors and fast system calls in 6.16 to 6.19. The package lists of Debian
# unstable are kept apart from the host's.
build_uml() {
  local release mirror name unpack log apt # its own options: other downloads use the package lists of this host
  # shellcheck disable=SC1091
  release=$(. /etc/os-release && echo "$ID ${VERSION_CODENAME:-}")
  # shellcheck disable=SC2016 # apt's own variables
  mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' "Created-By: Packages" |
    awk -v release="${release#debian }" '$1 == release && $2 == "main" { print $3; exit }')
  [ -n "$mirror" ] || die "no main archive of Debian among this host's package sources: no kernel source"
  unpack=$uml.part
  rm -rf "$unpack"
  mkdir -p "$unpack"/apt/{lists,cache}/partial "$unpack/apt/cache/archives/partial"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror unstable main" >"$unpack/apt/list"
  apt=(-o "Dir::Etc::SourceList=$unpack/apt/list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$unpack/apt/lists"
    -o "Dir::Cache=$unpack/apt/cache")
  apt-get -qq -o APT::Sandbox::User=root "${apt[@]}" update ||
    die "could not read the package lists of Debian unstable"
  name=$(apt-cache "${apt[@]}" depends linux-source | sed -n 's/.*Depends: *\(linux-source-[0-9.]*\)$/\1/p' | head -n 1)
  [ -n "$name" ] || die "Debian unstable names no linux-source"
  download "$name"
  rm -rf "$unpack/apt"
  mkdir "$unpack/tree"
  tar -C "$unpack/tree" --strip-components=1 -xf "$unpack/usr/src/$name.tar.xz"
  rm -rf "${unpack:?}/usr"
  log=$cache/uml-build.log
  say "building $name as a User Mode Linux: about 5 minutes"
  {
    patch -p1 -d "$unpack/tree" <"${uml_sources[1]}" && make -C "$unpack/tree" ARCH=um x86_64_defconfig &&
      cat "${uml_sources[0]}" >>"$unpack/tree/.config" && make -C "$unpack/tree" ARCH=um olddefconfig &&
      nice -n 5 make -s -C "$unpack/tree" ARCH=um -j"$(nproc)" linux && strip -o "$unpack/linux" "$unpack/tree/linux"
  } >"$log" 2>&1 || die "the kernel did not build: see $log"
  rm -rf "$unpack/tree" "$log" "$uml"
  mv "$unpack" "$uml"
  say "$("$uml/linux" --version), a User Mode Linux, is in $uml"
}

if [ ${#packages[@]} -gt 0 ]; then
  need_debian "what is missing"
  install_packages
fi
lock() {
  mkdir -p "$linux"
  exec 9>"$cache/.lock"
  flock 9
}
if $want_kernel && [ ! -e "$linux/current/vmlinux" ]; then
  lock
  get_kernel
fi
if $want_uml && [ ! -e "$uml/linux" ]; then
  lock
  [ -e "$uml/linux" ] || build_uml
fi
if $want_siw; then
  siw_module=lib/modules/$(readlink "$linux/current")/extra/siw.ko
  if [ ! -e "$linux/current/$siw_module" ]; then
    lock
    build_siw
  fi
fi
