#!/usr/bin/env bash
# clean_root_test.sh PACKAGES [SUITE]: by hand, as root, with debootstrap and a mirror in apt's sources.
#
# A fresh Debian of this machine's release (or of SUITE) gets the packages in the folder PACKAGES (cpack -B PACKAGES) and,
# from the mirror, their dependencies. Programs run there, consumers in C and C++ are built with CMake and pkg-config, then
# the packages are removed. The root's files and packages must be as before.
# shellcheck disable=SC2016  # what the root's shell expands
set -euo pipefail

sources=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=debian_root.sh
source "$sources/debian_root.sh"

packages=$(realpath "$1")
# shellcheck source=/dev/null
suite=${2:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
mapfile -t names < <(for deb in "$packages"/*.deb; do dpkg-deb -f "$deb" Package; done)

state() {
  in_root dpkg-query --show
  in_root find / -xdev \( -path /var/cache -o -path /var/log -o -path /var/lib/apt -o -path /tmp \) -prune -o \
    -printf '%p %y %m %l\n' | sort
}

make_root "$suite"
apt install --no-install-recommends gcc g++ cmake make pkg-config man-db
# apt makes the first when it first removes a package; adduser makes the others when a dependency first adds a group.
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

say "examples"
quietly in_root bash -euc 'cp -r /usr/share/intact/examples /tmp/examples && cd /tmp/examples && cmake -B build &&
  cmake --build build && ctest --test-dir build --output-on-failure --no-tests=error && rm -r /tmp/examples'
grep 'tests passed' "$work/log"

say "removing"
apt purge --auto-remove "${names[@]}"
diff "$work/before" <(state) || fail "not as before"
say "as before"
