# shellcheck shell=bash
# Sourced by scripts that work in a fresh Debian. debootstrap makes it in a temporary folder, which is removed when the script
# exits. Needs root, debootstrap, and a Debian mirror in apt's sources.
#
#   work, root                       the temporary folder, and the Debian's root in it
#   make_root SUITE                  makes the root
#   in_root [NAME=VALUE...] COMMAND  runs COMMAND in the root, with nothing of this environment
#   apt ARGUMENT...                  runs apt-get there; prints its output only if it fails
#   quietly COMMAND                  prints the output of COMMAND only if it fails; the output stays in $work/log
#   say, fail                        print a line; fail also ends the script
# shellcheck disable=SC2016  # what apt expands

# Mounts are in a separate namespace, and vanish with it.
[[ ${INTACT_OWN_MOUNTS:-} ]] || INTACT_OWN_MOUNTS=1 exec unshare --mount "$0" "$@"

name=$(basename "$0" .sh)
say() { echo "${name//_/ }: $*"; }
fail() {
  say "$*" >&2
  exit 1
}
((EUID == 0)) || fail "runs as user $EUID; expected root"
command -v debootstrap >/dev/null || fail "needs debootstrap; run: apt-get install debootstrap"

work=$(mktemp -d)
root=$work/root
remove_root() {
  local mounted
  for mounted in "$root"/{dev/shm,sys,proc}; do
    if mountpoint -q "$mounted"; then umount "$mounted" || umount --lazy "$mounted"; fi
  done
  rm -rf --one-file-system "$work"
}
trap remove_root EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" && fail "failed: $*"; }; }
in_root() {
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}
apt() { quietly in_root apt-get --yes --quiet "$@"; }

# Prints the mirror of SUITE that apt's sources name; else their first mirror of Debian, which has all suites.
mirror_of() {
  local filter mirror
  for filter in "Codename: $1" 'Label: Debian'; do
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' "$filter" 'Component: main' | head -n 1)
    [[ ! $mirror ]] || break
  done
  [[ $mirror ]] || fail "apt's sources name no mirror of Debian; expected one with the component main"
  echo "$mirror"
}

make_root() {
  local mirror
  mirror=$(mirror_of "$1")
  say "debootstrap $1"
  quietly debootstrap --variant=minbase "$1" "$root" "$mirror"
  mount -t proc proc "$root/proc"
  mount --bind /sys "$root/sys"
  mkdir -p "$root/dev/shm"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  apt update
}
