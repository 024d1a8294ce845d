# shellcheck shell=bash
# Sourced by bootstrap.sh. test_aarch64: the portable kernels and the Python package on aarch64, in an emulator.

readonly aarch64_onnxruntime_version=1.26.0  # of PyPI; qemu of Debian 12 cannot run 1.32
readonly aarch64_packages=(libc6 libgcc-s1 libstdc++6 libgomp1 libgfortran5 libblas3 liblapack3 zlib1g libexpat1 libffi8 libbz2-1.0
  liblzma5 libuuid1 libprotobuf32 libonnx1 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib python3-cffi-backend
  python3-cffi python3-numpy python3-onnx python3-protobuf python3-typing-extensions python3-pytest python3-iniconfig
  python3-pluggy python3-packaging python3-attr python3-pycparser python3-ply)

# Runs Debian 12's Python for arm64, which sees the built package. The CPU has no SME: with SME, ONNX Runtime fuses
# DynamicQuantizeLinear and MatMulInteger of s8 weights to a product that quantizes in another way.
aarch64_python() {
  local system=build/aarch64/root
  qemu-aarch64 -cpu neoverse-n1 -L "$system" -E LD_LIBRARY_PATH=/usr/lib/aarch64-linux-gnu/blas:/usr/lib/aarch64-linux-gnu/lapack \
    -E PYTHONPATH=build/aarch64/package:build/aarch64/site -E PYTHONDONTWRITEBYTECODE=1 "$system/usr/bin/python3.11" "$@"
}

# test_aarch64 [ARGUMENT...]: the digests, a sweep with these arguments, and tests of the package.
test_aarch64() {
  local intact=(qemu-aarch64 -L /usr/aarch64-linux-gnu build/aarch64/tools/intact)
  local error architecture=arm64 folder=build/aarch64
  install_packages g++-aarch64-linux-gnu qemu-user "${testing[@]}" python3-venv
  (($#)) || set -- --quick
  cmake -G Ninja -B "$folder" -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DCMAKE_BUILD_TYPE=Release -DINTACT_BUILD_PYTHON=ON
  cmake --build "$folder" --target intact intact_shared intact_python intact_python_target
  "${intact[@]}" verify digests
  "${intact[@]}" verify sweep "$@"

  error=$(unpack_debian bookworm "$root/$folder/root" usr/bin/python3.11 "${aarch64_packages[@]}") ||
    miss "Python for arm64: $error"
  rm -rf "$folder/package" "$folder/site"
  cmake --install "$folder" --component python --prefix "$folder/package" >/dev/null
  cp -r python/intact "$folder/package"
  make_environment "$folder/tools" pip
  "$folder/tools/bin/pip" install --quiet --disable-pip-version-check --target "$folder/site" --platform manylinux_2_28_aarch64 \
    --platform manylinux_2_27_aarch64 --python-version 3.11 --only-binary :all: --no-deps flatbuffers \
    "onnxruntime==$aarch64_onnxruntime_version" || miss "PyPI has no onnxruntime $aarch64_onnxruntime_version for aarch64"
  say "testing the Python package in qemu-aarch64 (minutes)"
  aarch64_python -m pytest -q -p no:cacheprovider -m "not long and not emulated" python/tests/test_{audit,compare,repair}.py
}
