#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a built, tested and verified intact. `usage` below tells how.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root
readonly packages=(g++ cmake ninja-build pkg-config libasmjit-dev libbenchmark-dev
  libgtest-dev libgmock-dev librapidcheck-dev nlohmann-json3-dev libcli11-dev libfmt-dev gnuplot-nox)
readonly peers=(libdnnl-dev ocl-icd-opencl-dev libxnnpack-dev libpthreadpool-dev libcpuinfo-dev libgemmlowp-dev)
readonly pytorch=(libtorch-dev python3-torch python3-torchvision python3-sklearn python3-numpy)

usage() {
  cat <<'END'
usage: tools/bootstrap.sh COMMAND [ARGUMENT...]

Each command installs the Debian packages that are missing, then configures and builds what it runs.

  build    build build/release;                        arguments go to `cmake --build`
  test     build and run the tests; --all: once more under address and undefined-behaviour sanitizers,
           for which everything is built again;        other arguments go to `ctest`
  verify   run `intact verify`, which writes report/;  arguments go to it
  bench    run `intact_bench`: a table beside oneDNN (installed if that is possible) and this machine's peaks,
           which also goes to report/;                 arguments go to it (--help, --benchmark_filter=REGEX, ...)
  pytorch  build PyTorch's operators, run their tests, the story of a saturated network, which goes to
           report/pytorch/, and a comparison of networks with PyTorch's own engines (installs libtorch-dev,
           python3-torch and others);                  arguments go to the comparison (--help)
  lint     check format and clang-tidy (wants clang-format and clang-tidy)

INTACT_PRESETS="release asan" says otherwise which builds `test` and the tests of `pytorch` cover: any of release,
debug, asan.
Commands run in the repository's root, so relative paths in arguments start there.
END
}

say() { echo "bootstrap: $*"; }
fail() {
  echo "bootstrap: $*" >&2
  exit 1
}

# Prints the arguments that dpkg does not know as installed.
missing_packages() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

# Installs those of the arguments that are missing; fails if it cannot.
try_install() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0

  local as_root=()
  if ((EUID != 0)); then
    as_root=(sudo)
    # Without a terminal sudo must not ask for a password: nobody would answer.
    [[ -t 0 ]] || as_root+=(-n)
    "${as_root[@]}" true 2>/dev/null || return 1
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
  say "installing ${missing[*]}"
  "${as_root[@]}" update && "${as_root[@]}" install --no-install-recommends "${missing[@]}"
}

# install_packages [PACKAGE...]: those that every build needs, and the arguments.
install_packages() {
  local wanted=("${packages[@]}" "$@")
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    fail "this is no Debian or Ubuntu; install the counterparts of: ${wanted[*]}; then run cmake --preset release"
  fi
  try_install "${wanted[@]}" ||
    fail "missing packages; run: sudo apt-get install $(missing_packages "${wanted[@]}" | paste -sd ' ')"
}

# What `bench` compares with and `verify` may be told to verify, where it can be had.
install_peers() {
  try_install "${peers[@]}" || say "going on without ${peers[*]}: no peer to compare with"
}

# bench [ARGUMENT...]
bench() {
  local argument outputs=(--json report/bench.json --html report/bench.html)
  for argument in "$@"; do
    [[ $argument != --benchmark_* && $argument != -h && $argument != --help ]] || outputs=()
  done
  build/release/bench/intact_bench "${outputs[@]}" "$@"
}

# build PRESET [ARGUMENT...]
build() {
  local preset=$1
  shift
  say "configuring build/$preset"
  cmake --preset "$preset" -DINTACT_BUILD_PYTORCH="${build_pytorch:-OFF}" >/dev/null
  say "building build/$preset (minutes the first time)"
  cmake --build --preset "$preset" "$@"
}

# The number in attribute $1 of the test suite in the JUnit file $2.
junit_count() { grep -m 1 -o "\b$1=\"[0-9]*" "$2" | tr -dc 0-9; }

# Sets the caller's `presets` to those of INTACT_PRESETS, or of $1 if it is not set.
read_presets() {
  local preset
  read -ra presets <<<"${INTACT_PRESETS:-$1}"
  for preset in "${presets[@]}"; do
    [[ $preset =~ ^(release|debug|asan)$ ]] || {
      echo "bootstrap: INTACT_PRESETS: '$preset' is no preset; expected some of: release debug asan" >&2
      exit 2
    }
  done
}

run_tests() {
  local argument preset presets=release arguments=() failed_presets=() total=0 failed=0 skipped=0
  for argument in "$@"; do
    if [[ $argument == --all ]]; then presets="release asan"; else arguments+=("$argument"); fi
  done
  read_presets "$presets"
  install_packages
  try_install openmpi-bin || say "going on without openmpi-bin: the test under mpirun is skipped"
  for preset in "${presets[@]}"; do
    build "$preset"
    say "testing build/$preset"
    local results=$root/build/$preset/tests.xml
    rm -f "$results"
    ctest --preset "$preset" --no-tests=error --parallel "$(nproc)" --output-junit "$results" "${arguments[@]}" ||
      failed_presets+=("$preset")
    [[ -f $results ]] || fail "ctest wrote no results for build/$preset"
    total=$((total + $(junit_count tests "$results")))
    failed=$((failed + $(junit_count failures "$results")))
    skipped=$((skipped + $(junit_count skipped "$results")))
  done
  say "${presets[*]}: $total tests, $((total - failed - skipped)) passed, $failed failed, $skipped skipped"
  ((${#failed_presets[@]} == 0)) || fail "tests failed in: ${failed_presets[*]}"
}

# PyTorch's part; nothing else that is tested is built. What is told of networks is told of the release build.
test_pytorch() {
  local preset presets build_pytorch=ON
  read_presets release
  install_packages "${pytorch[@]}"
  for preset in "${presets[@]}"; do
    build "$preset" --target intact_torch run_scripted intact
    ctest --preset "$preset" --no-tests=error --parallel "$(nproc)" --tests-regex '^pytorch\.'
  done
  [[ " ${presets[*]} " == *" release "* ]] || return 0
  export PYTHONPATH=build/release/integrations/pytorch
  /usr/bin/python3 integrations/pytorch/scripts/story.py --out report/pytorch
  say "comparing with PyTorch's engines (a minute or two)"
  /usr/bin/python3 integrations/pytorch/scripts/bench.py --rounds 5 --json report/pytorch/bench.json "$@"
}

lint() {
  local tool sources
  for tool in git clang-format run-clang-tidy; do
    command -v "$tool" >/dev/null || fail "lint needs $tool; run: sudo apt-get install git clang-format clang-tidy"
  done
  mapfile -t sources < <(git ls-files '*.h' '*.hpp' '*.c' '*.cc')
  say "clang-format over ${#sources[@]} files"
  clang-format --dry-run -Werror "${sources[@]}"
  # Clang cannot read GCC's precompiled headers.
  cmake --preset release -B build/lint -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
  say "clang-tidy over build/lint/compile_commands.json"
  run-clang-tidy -quiet -p build/lint "$@"
}

(($#)) || {
  usage >&2
  exit 2
}
command=$1
shift
cd "$root"
case $command in
  build)
    install_packages
    build release "$@"
    ;;
  test)
    run_tests "$@"
    ;;
  verify)
    install_packages
    install_peers
    build release --target intact
    say "verifying this machine's kernels; the report goes to report/"
    build/release/tools/intact verify "$@"
    ;;
  bench)
    install_packages
    install_peers
    build release --target intact_bench
    bench "$@"
    ;;
  pytorch)
    test_pytorch "$@"
    ;;
  lint)
    install_packages
    lint "$@"
    ;;
  -h | --help | help)
    usage
    ;;
  *)
    echo "bootstrap: unknown command '$command'" >&2
    usage >&2
    exit 2
    ;;
esac
