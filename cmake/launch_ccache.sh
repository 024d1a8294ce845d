#!/bin/sh
# launch_ccache.sh CCACHE COMPILER ARGUMENT...: compiles through ccache, except precompiled headers. To hash one, ccache
# preprocesses it, and GCC then reads the former precompiled header instead of the headers: the former result comes back.
ccache=$1
shift
case " $* " in *" -x c++-header "*) exec "$@" ;; esac
# Paths below the source folder count as relative, so that checkouts in several folders share their objects.
base=$(cd "$(dirname "$0")/.." && pwd)
# ccache caches objects that use a precompiled header only if it may ignore the header's macros and times.
CCACHE_BASEDIR=$base CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros exec "$ccache" "$@"
