# shellcheck shell=bash
# Sourced by bootstrap.sh: the sysroot of cmake/older_glibc.cmake.
#
# make_older_glibc: makes build/older_glibc of the C library of Debian 11, which has glibc 2.31, and of the development packages
# that a wheel is built with, which are copied from this machine. No header of a newer C library is read.
make_older_glibc() {
  local folder=$root/build/older_glibc link file error copied
  local libraries=$folder/usr/lib/x86_64-linux-gnu
  [[ ! -f $folder/complete ]] || return 0
  rm -rf "$folder"
  error=$(unpack_debian bullseye "$folder" usr/include/stdio.h libc6 libc6-dev linux-libc-dev libgcc-s1 libgomp1) ||
    miss "the C library of Debian 11: $error"
  # Absolute links lead out of the folder.
  find "$folder" -type l -lname '/*' | while read -r link; do ln -sfr "$folder$(readlink "$link")" "$link"; done
  ln -sfr "$folder/lib/x86_64-linux-gnu/libgcc_s.so.1" "$libraries/libgcc_s.so.1"
  ln -s libgomp.so.1 "$libraries/libgomp.so"
  mapfile -t copied < <(dpkg -L libasmjit-dev libfmt-dev libfmt9 nlohmann-json3-dev libcli11-dev liblemon-dev \
    "$(dpkg-query -S "$(realpath "$(g++ -print-file-name=libstdc++.a)")" | cut -d: -f1)")
  for file in "${copied[@]}"; do
    [[ ! -f $file ]] || cp --parents --no-dereference "$file" "$folder"
  done
  touch "$folder/complete"
}
