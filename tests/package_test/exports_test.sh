#!/usr/bin/env bash
# exports_test.sh LIBRARY HEADER…: LIBRARY exports the functions that the headers declare, and nothing else.
set -euo pipefail

exported=$(nm --dynamic --defined-only --format=posix "$1" | cut -d ' ' -f 1 | sort)
declared=$(grep -hoE '^INTACT_API .*' "${@:2}" | grep -oE 'intact_[a-z0-9_]+\(' | tr -d '(' | sort)
[[ -n $declared ]] || { echo "no declarations found in ${*:2}"; exit 1; }
diff <(echo "$declared") <(echo "$exported") || { echo "< declared but not exported; > exported but not declared"; exit 1; }
