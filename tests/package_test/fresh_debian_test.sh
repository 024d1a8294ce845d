#!/usr/bin/env bash
# fresh_debian_test.sh SUITE [COMMAND...]: by hand or in CI, as root, with debootstrap and a mirror in apt's sources.
#
# In a fresh Debian SUITE (bookworm, trixie), a fresh clone of this repository's HEAD runs each `tools/bootstrap.sh COMMAND`:
# first with the suite's g++, then another clone with its clang. Prints the last lines and the time of each; if tests fail, also
# their output. COMMAND may have arguments: "test --tests-regex ^OneDnn". Without COMMAND: verify and test, as in the README.
#
# INTACT_DEBIAN_COMPILERS="gcc" or "clang" runs one compiler only.
# Exit status: 0 if all commands succeed, 1 otherwise.
set -euo pipefail

repository=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
# shellcheck source=debian_root.sh
source "$(dirname "$0")/debian_root.sh"

(($#)) || fail "expected a suite: fresh_debian_test.sh SUITE [COMMAND...]"
suite=$1
shift
commands=("$@")
(($#)) || commands=(verify test)
read -ra compilers <<<"${INTACT_DEBIAN_COMPILERS:-gcc clang}"
for compiler in "${compilers[@]}"; do
  [[ $compiler =~ ^(gcc|clang)$ ]] || fail "INTACT_DEBIAN_COMPILERS: '$compiler' is not a compiler; expected gcc or clang"
done
readonly last_lines=8 failure_lines=200

# Prints the lines since the tests began: bootstrap.sh drops tests that pass. If none began: the build's last lines.
print_failure() {
  if grep -q '^Test project ' "$work/log"; then
    sed -n '/^Test project /,$p' "$work/log"
  else
    tail -n "$failure_lines" "$work/log"
  fi
}

# run COMPILER COMMAND: `tools/bootstrap.sh COMMAND` in the root's clone for COMPILER.
run() {
  local compiler=$1 arguments start=$SECONDS status=0 environment=()
  read -ra arguments <<<"$2"
  [[ $compiler != clang ]] || environment=(CC=clang CXX=clang++)
  in_root env --chdir="/root/intact-$compiler" "${environment[@]}" tools/bootstrap.sh "${arguments[@]}" </dev/null \
    >"$work/log" 2>&1 || status=$?
  if ((status == 0)); then
    tail -n "$last_lines" "$work/log"
    say "$suite, $compiler: tools/bootstrap.sh $2: succeeded after $((SECONDS - start)) s"
  else
    print_failure
    say "$suite, $compiler: tools/bootstrap.sh $2: exit status $status after $((SECONDS - start)) s" >&2
    failed+=("$compiler: $2")
  fi
}

make_root "$suite"
failed=()
for compiler in "${compilers[@]}"; do
  git clone --quiet --no-hardlinks "$repository" "$root/root/intact-$compiler"
  [[ $compiler != clang ]] || apt install --no-install-recommends clang libomp-dev
  for command in "${commands[@]}"; do run "$compiler" "$command"; done
done
((${#failed[@]} == 0)) || fail "$suite: ${#failed[@]} commands failed: $(printf '%s; ' "${failed[@]}")"
say "$suite: all commands succeeded"
