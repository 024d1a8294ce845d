#!/usr/bin/env bash
# clean_root_test.sh PACKAGES [SUITE]: by hand, as root, with debootstrap and a mirror in apt's sources.
#
# A fresh Debian of this machine's release (or of SUITE) gets the packages in the folder PACKAGES (cpack -B PACKAGES) and,
# from the mirror, what these depend on. Programs run there, consumers in C and C++ are built with CMake and pkg-config,
# then the packages go. What lies in the root and which packages it has must be the same as before.
# shellcheck disable=SC2016  # what apt and the root's shell expand
set -euo pipefail

# Mounts of an own namespace go with it.
[[ ${INTACT_OWN_MOUNTS:-} ]] || INTACT_OWN_MOUNTS=1 exec unshare --mount "$0" "$@"

packages=$(realpath "$1")
sources=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=/dev/null
suite=${2:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' "Codename: $suite" 'Component: main' |
  head -n 1)
[[ $mirror ]] || { echo "apt's sources name no mirror of $suite" && exit 1; }
work=$(mktemp -d)
root=$work/root
trap 'umount "$root/proc" "$root/sys" 2>/dev/null; rm -rf --one-file-system "$work"' EXIT
mapfile -t names < <(for deb in "$packages"/*.deb; do dpkg-deb -f "$deb" Package; done)

say() { echo "clean root: $*"; }
fail() {
  say "$*" >&2
  exit 1
}
# In the root, with nothing of this environment; told in full only if it fails.
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" && fail "failed: $*"; }; }
in_root() {
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}
apt() { quietly in_root apt-get --yes --quiet "$@"; }
state() {
  in_root dpkg-query --show
  in_root find / -xdev \( -path /var/cache -o -path /var/log -o -path /var/lib/apt -o -path /tmp \) -prune -o \
    -printf '%p %y %m %l\n' | sort
}

say "debootstrap $suite"
quietly debootstrap --variant=minbase "$suite" "$root" "$mirror"
mount -t proc proc "$root/proc"
mount --bind /sys "$root/sys"
cp /etc/resolv.conf "$root/etc/resolv.conf"
apt update
apt install --no-install-recommends gcc g++ cmake make pkg-config man-db bash-completion
# apt makes it when it first removes a package; and adduser these, when a dependency first adds a group.
in_root touch /var/lib/dpkg/status-old /run/adduser
in_root install --mode=640 /dev/null /etc/gshadow-
state >"$work/before"

say "installing ${names[*]}"
mkdir "$root/tmp/packages"
cp "$packages"/*.deb "$root/tmp/packages"
cp -r "$sources" "$root/tmp/sources"
chmod -R a+rX "$root/tmp/packages"
mapfile -t debs < <(cd "$root" && printf '/%s\n' tmp/packages/*.deb)
apt install --no-install-recommends "${debs[@]}"
(diff "$work/before" <(state) || true) | sed -n 's/^> \([^/ ]*\)\t/+ \1 /p'

say "programs"
in_root intact info | sed -n 1,3p
in_root intact verify replay 'gemm u8s8s32 m=5 n=16 k=64 fill=bait seed=7'
in_root intact_bench --help >/dev/null
in_root man intact | grep -A 2 '^NAME'
in_root bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader intact; complete -p intact'
in_root ldconfig -p | grep -F libintact.so.0

say "ten lines in C and C++, shared and static"
in_root bash -euc 'cd /tmp
  gcc sources/ten_lines.c $(pkg-config --cflags --libs intact) -o c && ./c
  g++ -std=c++20 sources/ten_lines.cc $(pkg-config --cflags --libs intact) -o cc && ./cc
  gcc sources/ten_lines.c $(pkg-config --cflags intact) -l:libintact.a \
    $(pkg-config --static --libs intact | sed s/-lintact//) -o c_static && ./c_static
  ldd c | grep intact; if ldd c_static | grep intact; then exit 1; fi
  rm c cc c_static'
say "CMake projects: C with C++; C alone, static"
for project in . c_only; do
  quietly in_root bash -euc "cd /tmp && cmake -S sources/$project -B build && cmake --build build &&
    ctest --test-dir build --output-on-failure --no-tests=error && rm -r build"
  grep 'tests passed' "$work/log"
done

say "removing"
apt purge --auto-remove "${names[@]}"
diff "$work/before" <(state) || fail "not as before"
say "as before"
