#!/usr/bin/env bash
# debian_test.sh BUILD SOURCES LIBDIR CC CXX FLAGS PACKAGE...
# Makes packages of BUILD, without building. Exactly these packages must be made, with the files of debian_contents.txt. dpkg
# installs them in a new root, where programs run and consumers build, and removes everything again. clean_root_test.sh does
# that in a whole Debian. Status 77: a tool is missing.
set -euo pipefail

build=$1 sources=$2 libdir=$3 cc=$4 cxx=$5 flags=$6
shift 6
packages=("$@")
fail() {
  echo "debian_test: $*" >&2
  exit 1
}
for tool in cpack dpkg dpkg-deb dpkg-shlibdeps file help2man; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is not here" && exit 77; }
done
as_root=()
if ((EUID != 0)); then
  command -v fakeroot >/dev/null || { echo "skipped: neither root nor fakeroot" && exit 77; }
  as_root=(fakeroot)
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$build" && cpack -G DEB -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip -B "$work") >"$work/log" 2>&1 || { cat "$work/log" && fail "cpack failed"; }
made=$(for deb in "$work"/*.deb; do dpkg-deb -f "$deb" Package; done | sort)
[[ $made == "$(printf '%s\n' "${packages[@]}" | sort)" ]] || fail "these packages were made: ${made//$'\n'/ }"

# Their contents.
version=$(dpkg-deb -f "$work"/libintact-dev_*.deb Version)
contents() {
  local deb
  for deb in "$work"/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -t | grep -v '/$' | sed "s|^\.|$(dpkg-deb -f "$deb" Package) |"
  done | sed -e "s|/$libdir/|/LIBDIR/|; s|\.${version%-*}\$|.VERSION|; s|Targets-[a-z]*\.cmake|Targets-CONFIG.cmake|" | sort
}
# The peers depend on the libraries found.
peers() {
  local peer
  for peer in "$build"/peers/*.so; do
    [[ ! -e $peer ]] || echo "intact-peers /usr/LIBDIR/intact/peers/$(basename "$peer")"
  done
}
diff <({ grep -E "^($(paste -sd '|' <<<"$made")) " "$sources/debian_contents.txt" && peers; } | sort) <(contents) ||
  fail "< is missing; > is not in debian_contents.txt"

# expect_field PACKAGE FIELD REGEX
expect_field() {
  local value
  value=$(dpkg-deb -f "$work/$1"_*.deb "$2")
  [[ $value =~ $3 ]] || fail "$1: $2 is '$value'"
}
library=$(grep '^libintact[0-9]' <<<"$made")
for package in "${packages[@]}"; do
  expect_field "$package" Maintainer '<.+@.+>$'
  expect_field "$package" Version '^[0-9.]+-[0-9]+$'
  [[ $package =~ ^(libintact-dev|intact-peers)$ ]] ||
    expect_field "$package" Depends 'libc6 .*lib(gomp1|omp5-[0-9]+) .*libstdc\+\+6 '
done
expect_field libintact-dev Depends "^$library \\(= $version\\), libasmjit-dev$"
[[ $(dpkg-deb -I "$work/$library"_*.deb shlibs) == "libintact ${library#libintact} $library (>= $version)" ]] ||
  fail "$library: shlibs"
[[ $(dpkg-deb -I "$work/$library"_*.deb triggers) == 'activate-noawait ldconfig' ]] || fail "$library: triggers"

# Installs, uses and removes them. This root does not know their dependencies.
root=$work/root
mkdir -p "$root"/var/lib/dpkg/{info,updates}
: >"$root/var/lib/dpkg/status"
in_root() {
  PATH=$PATH:/usr/sbin:/sbin "${as_root[@]}" dpkg --root="$root" --force-not-root --force-script-chrootless \
    --force-depends --log=/dev/null "$@" >"$work/log" 2>&1 || { cat "$work/log" && fail "dpkg $1 failed"; }
}
in_root --install "$work"/*.deb
if [[ $made == *intact-tools* ]]; then
  "$root/usr/bin/intact" --version | grep -qx "${version%-*}"
  "$root/usr/bin/intact" verify replay 'gemm u8s8s32 m=5 n=16 k=64 fill=bait seed=7' >/dev/null
fi
[[ $made != *intact-bench* ]] || "$root/usr/bin/intact_bench" --help >/dev/null
read -ra flags <<<"$flags"
"$sources/pkg_config_test.sh" "$sources" "$root/usr" "$libdir" "$cc" "$cxx" "${flags[@]}"
in_root --purge "${packages[@]}"
left=$(find "$root" -mindepth 1 -not -path "$root/var" -not -path "$root/var/lib" -not -path "$root/var/lib/dpkg*")
[[ -z $left ]] || fail "left behind: $left"
