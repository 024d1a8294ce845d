#!/usr/bin/env bash
# wheel_root_test.sh WHEEL [SUITE...]: by hand, as root, with debootstrap, a mirror in apt's sources, and PyPI.
#
# In a fresh Debian of each SUITE (default: bullseye bookworm trixie) the suite's Python installs the wheel. The program runs, a
# model of two layers is audited, and with Python 3.10 or newer it runs on the execution provider.
set -euo pipefail

sources=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=debian_root.sh
source "$sources/debian_root.sh"

wheel=$(realpath "$1")
suites=("${@:2}")
((${#suites[@]})) || suites=(bullseye bookworm trixie)

for suite in "${suites[@]}"; do
  make_root "$suite"
  apt install --no-install-recommends python3-venv ca-certificates
  cp "$wheel" "$sources/wheel_root_test.py" "$root/tmp"
  for file in /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do # a mirror of PyPI
    [[ ! -f $file ]] || cp "$file" "$root$file"
  done
  quietly in_root python3 -m venv /tmp/environment
  python=$(in_root python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  extras=onnx
  [[ ${python#3.} -lt 10 ]] || extras=onnx,onnxruntime
  quietly in_root /tmp/environment/bin/pip install "/tmp/${wheel##*/}[$extras]"
  in_root /tmp/environment/bin/intact info | sed -n 1,2p
  in_root /tmp/environment/bin/intact verify replay 'gemm u8s8s32 m=5 n=16 k=64 fill=bait seed=7'
  in_root /tmp/environment/bin/python /tmp/wheel_root_test.py /tmp/model.onnx
  status=0
  in_root /tmp/environment/bin/intact audit /tmp/model.onnx || status=$?
  ((status == 1)) || fail "$suite: the audit's status is $status; expected 1: the second layer can saturate"
  say "$suite, Python $python: passed"
  for mounted in "$root"/{dev/shm,sys,proc}; do umount "$mounted"; done
  rm -rf --one-file-system "$root"
done
