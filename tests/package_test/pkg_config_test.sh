#!/usr/bin/env bash
# pkg_config_test.sh SOURCES PREFIX LIBDIR CC CXX [FLAG...]
# Builds and runs the two consumers with the flags of intact.pc in PREFIX only, like a user without CMake.
set -euo pipefail

sources=$1 prefix=$2 libdir=$3 cc=$4 cxx=$5
shift 5
export PKG_CONFIG_PATH=$prefix/$libdir/pkgconfig LD_LIBRARY_PATH=$prefix/$libdir
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pkg-config --exists --print-errors 'intact >= 0.1'
read -ra cflags <<<"$(pkg-config --cflags intact)"
read -ra libs <<<"$(pkg-config --libs intact)"
"$cc" "$@" "${cflags[@]}" "$sources/consumer.c" "${libs[@]}" -o "$work/consumer_c"
"$cxx" "$@" -std=c++20 "${cflags[@]}" "$sources/consumer.cc" "${libs[@]}" -o "$work/consumer_cc"
"$work/consumer_c"
"$work/consumer_cc"

# The archive, with its own dependencies. The linker would prefer the shared library, so hide that.
read -ra static_libs <<<"$(pkg-config --static --libs intact)"
mkdir "$work/lib"
cp "$prefix/$libdir/libintact.a" "$work/lib"
static_libs=("${static_libs[@]/#-L*/-L$work/lib}")
"$cc" "$@" "${cflags[@]}" "$sources/consumer.c" "${static_libs[@]}" -o "$work/consumer_static"
LD_LIBRARY_PATH='' "$work/consumer_static"
